// Functions of lists of lazy expressions, of any length: pooling, attention, convolution over a sequence.
//
// Beside sum() and mean() of lazy.h. A list of n expressions takes about n operations, in a tree whose depth grows with
// the logarithm of n, so lists of different lengths share batches. The expressions of a list have one width. All throw
// MisuseError for an empty list and for different widths. Operators that fail name the line `from`.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <source_location>
#include <span>
#include <vector>

#include "windrow/batching/lazy.h"

namespace windrow {

/// The maximum of each column, NaN if one is NaN; of equal elements the first one gets the gradient.
LazyExpr max(std::span<const LazyExpr> terms, std::source_location from = std::source_location::current());
/// log(sum of exp(x)) of each column; finite for finite terms, -inf if all are.
LazyExpr log_sum_exp(std::span<const LazyExpr> terms, std::source_location from = std::source_location::current());
/// The softmax over the list, for each column. A term of -1e30 or -inf gets 0; if all have it, see softmax_children().
std::vector<LazyExpr> softmax(std::span<const LazyExpr> terms,
                              std::source_location from = std::source_location::current());
/// The sum of each value times its weight, an expression of width 1. One operation, as the call of a cell; values are
/// copied once for each flush, however many sums there are. Throws MisuseError also for lists of two lengths.
LazyExpr weighted_sum(std::span<const LazyExpr> weights, std::span<const LazyExpr> values,
                      std::source_location from = std::source_location::current());
/// The sum of the values, weighted by the softmax of the dot products of their keys with the query. `masks`, of width
/// 1, are added to the dot products, if there are any: -1e30 hides a key, 0 does not. One operation, as the call of a
/// cell; keys and values are copied once for each flush, however many queries there are. Throws MisuseError also for
/// lists of different lengths, and for a query that is not as wide as the keys.
LazyExpr dot_attention(const LazyExpr& query, std::span<const LazyExpr> keys, std::span<const LazyExpr> values,
                       std::span<const LazyExpr> masks = {},
                       std::source_location from = std::source_location::current());
/// The k largest elements of each column, in the order in which they are in the list (k-max pooling, Kalchbrenner et
/// al. 2014): first those of the first term, then the next ones. The result is k times as wide as a term. Throws
/// MisuseError for k below 1 and above the length of the list.
LazyExpr k_max(std::span<const LazyExpr> terms, Index k, std::source_location from = std::source_location::current());
/// A convolution over a sequence: the product of each window of neighbouring values, side by side, with the filters, of
/// window * width rows. Zeros surround the sequence, so the result has as many expressions as the list: its i-th one
/// sees the values from i - (window - 1) / 2 on. Throws MisuseError also for a window below 1, and if the filters do
/// not fit.
std::vector<LazyExpr> conv1d(std::span<const LazyExpr> values, const Parameter& filters, Index window,
                             std::source_location from = std::source_location::current());
/// The sum of rows of a table, a bag of any number of indices. Throws MisuseError if there are none.
LazyExpr embedding_bag(const Parameter& table, std::span<const LazyIndex> rows,
                       std::source_location from = std::source_location::current());

}  // namespace windrow
