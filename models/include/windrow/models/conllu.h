// Dependency treebanks in CoNLL-U, the format of Universal Dependencies (de Marneffe et al. 2021), read or generated;
// and their graphs, as input of vertex functions.
//
//   1  they  _  PRON  _  _  2  nsubj  2:nsubj|4:nsubj  _   a line for each word, of ten fields between tabs,
//   2  sat   _  VERB  _  _  0  root   0:root           _   and a blank line behind each sentence
//   ...
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/models/data_error.h"
#include "windrow/models/vocabulary.h"

namespace windrow {

/// From a head to what depends on it.
struct Arc {
  std::int32_t head;
  std::string relation = {};
  friend bool operator==(const Arc&, const Arc&) = default;
};

/// Words are numbered from 1; as a head, 0 stands for the root. Empty nodes, words that were left out ("I go to Rome
/// and you [go] to Paris"), come behind the words: they have a form and a tag like these, but take part in enhanced
/// dependencies only. So whoever wants words alone takes heads.size() of them, and nothing is lost.
struct DependencySentence {
  std::vector<std::string> forms = {},
                           tags = {};       ///< of words, then of empty nodes; the tags are those of the column UPOS
  std::vector<std::int32_t> heads = {};     ///< of words: a tree with one root
  std::vector<std::string> relations = {};  ///< of words, to their heads
  std::vector<std::vector<Arc>> enhanced =
      {};  ///< of words, then of empty nodes, as the column DEPS has them; may be none
};

/// Reads all sentences. Passes over comments, lines of ranges such as 1-2 (their words follow), the fields that
/// DependencySentence does not have, a byte order mark, and blank lines where there is no sentence to end. Throws
/// DataError if there is no sentence; for lines that are malformed or out of order, heads that do not exist, words that
/// are their own head, basic dependencies that are no tree. `name` is said in errors.
std::vector<DependencySentence> read_conllu(std::istream& in, const std::string& name);
/// Throws DataError also if it is no file, or one that cannot be read.
std::vector<DependencySentence> read_conllu(const std::filesystem::path& file);

/// Whether no two basic dependencies cross when they are drawn above the sentence, that from the root, which stands
/// before the first word, among them. Transition systems that do not reorder words build no others.
bool projective(const DependencySentence& sentence);

/// The basic dependencies: a vertex for each word, the first being 0, with its dependents as children, from left to
/// right.
GraphData dependency_tree(const DependencySentence& sentence);

/// The enhanced dependencies in the same way: vertices for words and empty nodes, each once among the children of each
/// head. They may go in circles, as in "the story that comes", where the story is the subject of what it is described
/// by; who walks them depth first, from the root and from left to right, leaves out what leads back.
GraphData enhanced_graph(const DependencySentence& sentence);
/// The same with, as edge index "relation", the number of each; the first, where a head has several relations to a
/// dependent.
GraphData enhanced_graph(const DependencySentence& sentence, const Vocabulary& relations);

/// The text of sentences by a small grammar: 12 words in the mean, all projective. It can be learned: a form has one
/// tag; a verb's form tells whether it has an object or another verb; a preposition's, whether it goes with the noun or
/// with the verb before it. Enhanced dependencies have no circles. In them conjuncts share what they depend on, verbs
/// share subjects, and so one word in twenty has several heads. The same seed gives the same text.
std::string generate_conllu(std::size_t sentences, std::uint64_t seed);

}  // namespace windrow
