// Dependency treebanks in CoNLL-U, the format of Universal Dependencies (de Marneffe et al. 2021): read from text or
// generated, and converted to input graphs of vertex functions.
//
//   1  they  _  PRON  _  _  2  nsubj  2:nsubj|4:nsubj  _   one line per word, of ten fields separated by tabs,
//   2  sat   _  VERB  _  _  0  root   0:root           _   and a blank line after each sentence
//   ...
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/models/vocabulary.h"

namespace windrow {

/// A dependency: its head and relation. The dependent is given by the context.
struct Arc {
  std::int32_t head;
  std::string relation = {};
  friend bool operator==(const Arc&, const Arc&) = default;
};

/// A sentence. Words are numbered from 1; head 0 is the root. Empty nodes are words that the sentence omits ("I go to
/// Rome and you [go] to Paris"). They follow the words in the lists: they have a form and a tag, but take part in
/// enhanced dependencies only. The number of words is heads.size().
struct DependencySentence {
  std::vector<std::string> forms = {},
                           tags = {};       ///< of words, then of empty nodes; the tags are those of the column UPOS
  std::vector<std::int32_t> heads = {};     ///< of words; they form a tree with one root
  std::vector<std::string> relations = {};  ///< of words to their heads
  std::vector<std::vector<Arc>> enhanced =
      {};  ///< of words, then of empty nodes, as the column DEPS has them; may be none
};

/// Reads all sentences. Ignores comments, lines of ranges such as 1-2 (whose words follow), fields that
/// DependencySentence does not have, a byte order mark, and extra blank lines. Throws DataError if the stream cannot be
/// read, if there is no sentence, and for malformed or misordered lines, heads that do not exist, words that are their
/// own head, and basic dependencies that are not a tree. Errors mention `name`.
std::vector<DependencySentence> read_conllu(std::istream& in, const std::string& name);
/// The same from a file, which may be compressed (.gz). Throws DataError also if it is not a regular file or cannot be
/// opened.
std::vector<DependencySentence> read_conllu(const std::filesystem::path& file);
/// The same for sentences that are to be parsed: heads, relations, enhanced dependencies and empty nodes are ignored,
/// and fields may be _. All heads are 0, and all relations empty.
std::vector<DependencySentence> read_unparsed_conllu(std::istream& in, const std::string& name);
/// Whether a line is one of a word in CoNLL-U: ten fields separated by tabs, of which the first begins with a digit.
bool is_conllu_line(std::string_view line);

/// Whether the basic dependencies are projective: no two of them cross when drawn above the sentence, including the one
/// from the root, which stands before the first word. Transition systems that do not reorder words can build projective
/// trees only.
bool projective(const DependencySentence& sentence);

/// The graph of the basic dependencies: a vertex for each word, from 0, whose children are its dependents from left to
/// right.
GraphData dependency_tree(const DependencySentence& sentence);

/// The graph of the enhanced dependencies: a vertex for each word and empty node; a dependent is a child of each of its
/// heads once. Enhanced dependencies may contain cycles, as in "the story that comes", where the story is the subject
/// of the clause that describes it. A depth-first walk from the root, and then from vertices that it has not reached,
/// in the order of words, drops the arcs that lead back to its path.
GraphData enhanced_graph(const DependencySentence& sentence);
/// The same, with the number of each relation as edge index "relation". If a head has several relations to one
/// dependent, the first one counts.
GraphData enhanced_graph(const DependencySentence& sentence, const Vocabulary& relations);

/// Generates the text of projective sentences from a small grammar, 12 words on average. The same seed gives the same
/// text. It can be learned: a form has one tag; a verb's form determines whether it takes an object or another verb; a
/// preposition's form determines whether it attaches to the noun or to the verb before it. Enhanced dependencies have
/// no cycles. In them conjuncts share heads, and verbs share subjects, so one word in twenty has several heads.
std::string generate_conllu(std::size_t sentences, std::uint64_t seed);

}  // namespace windrow
