// ListOps (Nangia and Bowman 2018): nested operations on digits; the value of each list is a digit. Read from text or
// generated.
//
//   6<tab>( ( ( ( [MAX 2 ) 1 ) ( ( ( [MIN 6 ) 8 ) ] ) ) ] )      as published
//   6<tab>[MAX 2 1 [MIN 6 8 ] ]                                  the same without round brackets
#pragma once
#include "windrow/engine/requirements.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/models/vocabulary.h"

namespace windrow {

/// Maximum, minimum, median (of an even number of arguments: the mean of the middle two, rounded down), and sum modulo
/// 10.
inline constexpr std::array<std::string_view, 4> listops_operators = {"MAX", "MIN", "MED", "SM"};
/// The number of symbols: a digit's symbol is the digit, an operator's is 10 plus its position in listops_operators.
inline constexpr std::int32_t listops_symbols = 14;
/// Labels are the values 0 to 9.
inline constexpr std::int32_t listops_labels = 10;

/// Applies an operator to its arguments. Preconditions: `symbol` is that of an operator, and there is at least one
/// argument.
std::int32_t listops_value(std::int32_t symbol, std::span<const std::int32_t> arguments);

/// A tree with a vertex for each digit and each list. Children precede their consumers, so the root is the last vertex;
/// the children of a list are its arguments, in order.
struct ListOpsTree {
  GraphData graph = {};    ///< children, and the indices "symbol" and "label"
  std::int32_t value = 0;  ///< the label of the root
};

/// Reads one tree per line, preceded by its value and a tab, which may both be missing, or followed by a tab and its
/// value, as in Long Range Arena (Tay et al. 2021), whose first line names the columns. Round brackets, which the
/// published data put around the beginnings of lists, are ignored, but must match. Blank lines and a byte order mark
/// are ignored. Throws DataError if the stream cannot be read, if there is no tree, or if a tree is malformed or does
/// not have the stated value. Errors mention `name`.
std::vector<ListOpsTree> read_listops(std::istream& in, const std::string& name);
/// The same from a file. Throws DataError also if it is not a regular file or cannot be opened.
std::vector<ListOpsTree> read_listops(const std::filesystem::path& file);

/// The shape of generated trees. The defaults are as published.
struct ListOpsShape {
  int max_arguments = 5;  ///< of a list, which has at least 2; 2 to 10
  int max_depth = 20;     ///< vertices on the path from the root to a digit; 2 to 20
};

/// Generates the text of trees, drawn as by the authors' program: an argument is a list with probability 1/4; numbers
/// of arguments and operators are uniformly distributed; no tree occurs twice, unless hardly any others are left. Since
/// there are few small trees, they are rarer in larger data sets: 100,000 trees have 34 vertices on average, up to some
/// hundreds. Unlike with that program, no tree is a single digit. The same seed gives the same text. Throws MisuseError
/// for a shape out of range.
std::string generate_listops(std::size_t trees, std::uint64_t seed, const ListOpsShape& shape = {});

}  // namespace windrow
