// Treebanks: sentences as binary trees with a label at every vertex, read from text or generated.
//
// The text is that of the Stanford Sentiment Treebank (Socher et al. 2013), a tree a line: a label from 0 to 4, then a
// word or two trees.
//
//   (3 (2 It) (4 works))
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

/// Labels are 0 to tree_labels - 1: from very negative over neutral to very positive.
inline constexpr std::int32_t tree_labels = 5;

/// A sentence. Vertices are numbered children first, so that the root is the last.
struct LabelledTree {
  GraphData graph = {};                 ///< the children and, as indices, "label"
  std::vector<std::string> words = {};  ///< of each vertex; empty for those with children
};

/// Reads all trees; blank lines are passed over, and so is a byte order mark. Throws DataError if there is none, or one
/// that is malformed; `name` is said in errors.
std::vector<LabelledTree> read_treebank(std::istream& in, const std::string& name);
/// Throws DataError also if it is no file, or one that cannot be read.
std::vector<LabelledTree> read_treebank(const std::filesystem::path& file);

/// The text of a treebank that follows the English sentences of the Stanford one: in the number of words a tree, in how
/// vertices divide them, hence in depth and in how many vertices lie on one level. Its labels can be learned: words are
/// good, bad or neither, turn what follows around or strengthen it; and a vertex is worth what its children make of
/// each other. The same seed gives the same text.
std::string generate_treebank(std::size_t trees, std::uint64_t seed);

/// Numbers the words that are seen `at_least` times in these trees.
Vocabulary vocabulary_of(const std::vector<LabelledTree>& trees, std::int64_t at_least = 2);
/// The tree's graph with, as indices, "word": the number at vertices with a word, -1 at others.
GraphData numbered(const LabelledTree& tree, const Vocabulary& vocabulary);

}  // namespace windrow
