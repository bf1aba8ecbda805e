// ListOps (Nangia and Bowman 2018): nested operations on digits, each list worth a digit. Read from text or generated.
//
//   6<tab>( ( ( ( [MAX 2 ) 1 ) ( ( ( [MIN 6 ) 8 ) ] ) ) ] )      as published
//   6<tab>[MAX 2 1 [MIN 6 8 ] ]                                  the same without round brackets
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/models/data_error.h"

namespace windrow {

/// The largest, the smallest, the median (of an even number of arguments, the mean of the two in the middle, rounded
/// down), and the sum modulo 10.
inline constexpr std::array<std::string_view, 4> listops_operators = {"MAX", "MIN", "MED", "SM"};
/// A digit's symbol is the digit, an operator's 10 and its place in listops_operators.
inline constexpr std::int32_t listops_symbols = 14;
/// Labels are values, 0 to 9.
inline constexpr std::int32_t listops_labels = 10;

/// What an operator makes of its arguments, of which there are one or more. `symbol` is that of an operator.
std::int32_t listops_value(std::int32_t symbol, std::span<const std::int32_t> arguments);

/// A vertex for each digit and each list, children before their consumers, so that the root is the last; a list's
/// children are its arguments, in their order.
struct ListOpsTree {
  GraphData graph = {};    ///< the children and, as indices, "symbol" and "label"
  std::int32_t value = 0;  ///< the label of the root
};

/// Reads a tree a line, behind its value and a tab, which may both be missing. Round brackets, which the published data
/// put around a list's beginnings, say nothing new; they must pair. Blank lines are passed over, and so is a byte order
/// mark. Throws DataError if there is no tree, or one that is malformed or has another value; `name` is said in errors.
std::vector<ListOpsTree> read_listops(std::istream& in, const std::string& name);
/// Throws DataError also if it is no file, or one that cannot be read.
std::vector<ListOpsTree> read_listops(const std::filesystem::path& file);

/// As published.
struct ListOpsShape {
  int max_arguments = 5;  ///< of a list, which has 2 or more; 2 to 10
  int max_depth = 20;     ///< of vertices from the root to a digit; 2 to 20
};

/// The text of trees as the authors' program draws them: an argument is a list with probability 1/4, of any number of
/// arguments and with any operator alike; and no tree comes twice, except where there are hardly any others left. The
/// fewer there are, the fewer the small trees: of 100,000, 34 vertices in the mean, up to some hundreds. Unlike that
/// program's, no tree is a digit alone. The same seed gives the same text. Throws MisuseError for a shape out of range.
std::string generate_listops(std::size_t trees, std::uint64_t seed, const ListOpsShape& shape = {});

}  // namespace windrow
