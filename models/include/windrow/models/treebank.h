// Treebanks: sentences as binary trees with a label at every vertex; read from text or generated.
//
// The text format is that of the Stanford Sentiment Treebank (Socher et al. 2013), one tree per line: a label from 0 to
// 4, then a word or two trees.
//
//   (3 (2 It) (4 works))
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/models/vocabulary.h"

namespace windrow {

/// The number of labels: 0 (very negative) to tree_labels - 1 (very positive).
inline constexpr std::int32_t tree_labels = 5;

/// A sentence. Children precede their parents, so the root is the last vertex.
struct LabelledTree {
  GraphData graph = {};                 ///< the children, and the index "label"
  std::vector<std::string> words = {};  ///< of each vertex; empty for vertices with children
};

/// Reads all trees. Blank lines and a byte order mark are ignored. Throws DataError if the stream cannot be read, if
/// there is no tree, or if one is malformed. Errors mention `name`.
std::vector<LabelledTree> read_treebank(std::istream& in, const std::string& name);
/// The same from a file. Throws DataError also if it is not a regular file or cannot be opened.
std::vector<LabelledTree> read_treebank(const std::filesystem::path& file);

/// The binary task (Socher et al. 2013): labels become 0 for negative and 1 for positive ones, and vertices with the
/// neutral label have none (-1). Drops trees whose root is neutral.
std::vector<LabelledTree> with_two_labels(std::vector<LabelledTree> trees);

/// Generates the text of a treebank that resembles the Stanford one in the number of words per tree and in how vertices
/// divide them, hence in depth and in the number of vertices per level. Its labels can be learned: a word is good, bad
/// or neutral, or it negates or intensifies what follows, and a vertex's label follows from its children. The same seed
/// gives the same text.
std::string generate_treebank(std::size_t trees, std::uint64_t seed);

/// The vocabulary of the words that occur at least `at_least` times in these trees.
Vocabulary vocabulary_of(const std::vector<LabelledTree>& trees, std::int64_t at_least = 2);
/// The tree's graph with the additional index "word": the number of the word, -1 for vertices without one.
GraphData numbered(const LabelledTree& tree, const Vocabulary& vocabulary);

}  // namespace windrow
