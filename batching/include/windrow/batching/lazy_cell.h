// Cells of lazy expressions: computations that a program repeats, written once. A call records one cell instead of its
// operations, so it costs less to record and to group. Its vertices are computed as those of a vertex function.
//
//   const windrow::LazyCell tree = graph.cell("tree", [&](windrow::CellBody& cell) {
//     const windrow::Expr left = cell.operand(h), right = cell.operand(h);
//     const windrow::Expr word = embedding(words, cell.index(windrow::Presence::sometimes));
//     cell.result(tanh(matmul(word, in) + matmul(concat(left, right), below)));
//   });
//   windrow::LazyExpr root = tree({tree({{}, {}}, {graph.index(5)}), tree({{}, {}}, {graph.index(7)})},
//                                 {graph.index(-1)});
//
// An operand may be an empty expression, and an optional index may be -1. Both count as zero, and values that are zero
// for this reason are not computed, as in vertex functions. A cell can also read a list of any length, such as the
// words that a step of a decoder attends to:
//
//   const windrow::LazyCell read = graph.cell("read", [&](windrow::CellBody& cell) {
//     const windrow::Expr query = cell.operand(h), word = cell.each(h);
//     const windrow::Expr weight = exp(row_dot(word, to_children(query)));
//     cell.result(sum_children(weight * word) / sum_children(weight));
//   });
//   windrow::LazyExpr context = read({state}, {}, words);
//
// dropout() in a body works as outside of cells: in training only, with another mask for each call.
//
// The bodies of cells compute with the expressions of vertex functions (expr.h). Cells and other lazy expressions can
// be mixed; operations that are written outside of cells are grouped as before.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <array>
#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <vector>

#include "windrow/batching/lazy.h"

namespace windrow {

namespace lazy {
struct Cell;
class CellInputs;
}  // namespace lazy

/// The argument of a cell's body, which takes operands and indices in the order in which calls pass them. The body may
/// run several times, and must do the same each time. All members throw MisuseError, naming the cell, for misuse.
class CellBody {
 public:
  explicit CellBody(lazy::CellInputs& inputs) : inputs_(inputs) {}
  CellBody(const CellBody&) = delete;
  CellBody& operator=(const CellBody&) = delete;

  static constexpr std::size_t most_operands = 16, most_each = 6;

  /// The next operand: a row of that width for each call.
  Expr operand(Index width);
  /// The next operand of each element of the list: a value of edges (see Vertex::each).
  Expr each(Index width);
  /// The next index operand.
  IndexExpr index(Presence presence = Presence::always, Index width = 1);

  /// As in Vertex.
  Expr constant(Index width, double value);
  Expr zeros(Index width) { return constant(width, 0); }
  Expr parameter(const LazyWeight& weight);  ///< a parameter, or a function of parameters

  /// The next result: a row for each call.
  void result(const Expr& value);

 private:
  lazy::CellInputs& inputs_;
};

/// A handle. It may outlive its graph, but then it cannot be used. Threads: as its graph.
class LazyCell {
 public:
  /// Records a call, and returns its results. `list` holds the elements of the list one after the other; each has as
  /// many expressions as the body calls each(). Throws MisuseError, naming the cell, unless the numbers of operands,
  /// indices and results, their widths, and the ranges of indices are as in the body. Also throws as apply() of lazy.h
  /// does.
  template <std::size_t results>
  std::array<LazyExpr, results> call(std::initializer_list<lazy::OperandRef> operands,
                                     std::initializer_list<LazyIndex> indices = {}, std::span<const LazyExpr> list = {},
                                     std::source_location from = std::source_location::current()) const {
    std::array<LazyExpr, results> made;
    record({operands.begin(), operands.size()}, {indices.begin(), indices.size()}, list, made, from);
    return made;
  }
  /// The same where the program knows the numbers of operands and results only when it runs.
  std::vector<LazyExpr> call(std::span<const lazy::OperandRef> operands, std::span<const LazyIndex> indices,
                             std::span<const LazyExpr> list = {},
                             std::source_location from = std::source_location::current()) const;
  /// The same for a cell with one result.
  LazyExpr operator()(std::initializer_list<lazy::OperandRef> operands, std::initializer_list<LazyIndex> indices = {},
                      std::span<const LazyExpr> list = {},
                      std::source_location from = std::source_location::current()) const {
    return std::move(call<1>(operands, indices, list, from)[0]);
  }

 private:
  friend class lazy::Record;
  LazyCell(lazy::Uses& record, std::shared_ptr<lazy::Cell> cell) : record_(record), cell_(std::move(cell)) {}
  void record(std::span<const lazy::OperandRef> operands, std::span<const LazyIndex> indices,
              std::span<const LazyExpr> list, std::span<LazyExpr> results, std::source_location from) const;

  lazy::RecordRef record_;
  std::shared_ptr<lazy::Cell> cell_;
};

// Functions of lists of lazy expressions, of any length: pooling, attention, convolution over a sequence.
//
// sum() and mean() are in lazy.h. expr.h has the functions of the first part for vertex functions and cells, under the
// same names. A list is a vector, an array, a span, or a list in braces, as in windrow::softmax({x, y}). A list of n
// expressions takes about n operations, in a tree whose depth grows with the logarithm of n, so lists of different
// lengths share batches. The expressions of a list have one width. All throw MisuseError for an empty list and for
// different widths. Operators that fail name the line `from`.

/// The maximum of each column, NaN if one is NaN; of equal elements the first one gets the gradient.
LazyExpr max(std::span<const LazyExpr> terms, std::source_location from = std::source_location::current());
/// log(sum of exp(x)) of each column; finite for finite terms, -inf if all are.
LazyExpr log_sum_exp(std::span<const LazyExpr> terms, std::source_location from = std::source_location::current());
/// The softmax over the list, for each column. A term of -1e30 or -inf gets 0; see softmax_children() for the case that
/// all terms are.
std::vector<LazyExpr> softmax(std::span<const LazyExpr> terms,
                              std::source_location from = std::source_location::current());
/// The k largest elements of each column, in the order of the list (k-max pooling, Kalchbrenner et al. 2014). The
/// result is k times as wide as a term. Throws MisuseError for k below 1 and above the length of the list.
LazyExpr k_max(std::span<const LazyExpr> terms, Index k, std::source_location from = std::source_location::current());
inline LazyExpr max(std::initializer_list<LazyExpr> terms,
                    std::source_location from = std::source_location::current()) {
  return max(std::span(terms.begin(), terms.size()), from);
}
inline LazyExpr log_sum_exp(std::initializer_list<LazyExpr> terms,
                            std::source_location from = std::source_location::current()) {
  return log_sum_exp(std::span(terms.begin(), terms.size()), from);
}
inline std::vector<LazyExpr> softmax(std::initializer_list<LazyExpr> terms,
                                     std::source_location from = std::source_location::current()) {
  return softmax(std::span(terms.begin(), terms.size()), from);
}
inline LazyExpr k_max(std::initializer_list<LazyExpr> terms, Index k,
                      std::source_location from = std::source_location::current()) {
  return k_max(std::span(terms.begin(), terms.size()), k, from);
}
/// The sum of each value times its weight, an expression of width 1. It counts as one operation, as the call of a cell
/// does. Each flush copies a value once, however many sums use it. Throws MisuseError also for lists of two lengths.
LazyExpr weighted_sum(ListOf<LazyExpr> weights, ListOf<LazyExpr> values,
                      std::source_location from = std::source_location::current());
/// The sum of the values, weighted by the softmax of the dot products of their keys with the query. `masks`, of width
/// 1, are added to the dot products, if there are any: -1e30 hides a key, 0 does not. It counts as one operation, as
/// the call of a cell does. Each flush copies keys and values once, however many queries use them. Throws MisuseError
/// also for lists of different lengths, and for a query that is not as wide as the keys.
LazyExpr dot_attention(const LazyExpr& query, ListOf<LazyExpr> keys, ListOf<LazyExpr> values,
                       ListOf<LazyExpr> masks = {}, std::source_location from = std::source_location::current());

// For lazy expressions alone.

/// A convolution over a sequence: the product of each window of neighbouring values, side by side, with the filters,
/// which have window * width rows. Zeros surround the sequence, so the result has as many expressions as the list: its
/// i-th one sees the values from i - (window - 1) / 2 on. Throws MisuseError also for a window below 1, and if the
/// filters do not fit.
std::vector<LazyExpr> conv1d(std::span<const LazyExpr> values, const Parameter& filters, Index window,
                             std::source_location from = std::source_location::current());
/// The sum of rows of a table, a bag of any number of indices. Throws MisuseError if there are none.
LazyExpr embedding_bag(const Parameter& table, std::span<const LazyIndex> rows,
                       std::source_location from = std::source_location::current());

}  // namespace windrow
