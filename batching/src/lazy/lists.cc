// Functions of lists of lazy expressions.
#include "ir/lists.h"

#include <string>

#include "lazy/record.h"
#include "windrow/batching/lazy_cell.h"

namespace windrow {
namespace {

/// Joins neighbours until one expression is left.
template <class Join>
LazyExpr in_a_tree(std::vector<LazyExpr> terms, Join join) {
  while (terms.size() > 1) {
    std::vector<LazyExpr> joined;
    for (std::size_t i = 0; i + 1 < terms.size(); i += 2) joined.push_back(join(terms[i], terms[i + 1]));
    if (terms.size() % 2 == 1) joined.push_back(terms.back());
    terms = std::move(joined);
  }
  return terms[0];
}

LazyExpr joined(const Operator& op, std::span<const LazyExpr> terms, std::source_location from) {
  return in_a_tree({terms.begin(), terms.end()}, [&](const LazyExpr& x, const LazyExpr& y) {
    return apply(op, {x, y}, {}, {}, from);
  });
}

/// Calls a cell with the list whose elements consist of these side by side.
LazyExpr called(lazy::OwnCell which, const std::vector<Index>& each, std::span<const lazy::OperandRef> operands,
                std::initializer_list<std::span<const LazyExpr>> sides, std::source_location from) {
  const std::span<const LazyExpr> first = *sides.begin();
  std::vector<LazyExpr> list;
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (const auto& side : sides) {
      if (!side.empty()) list.push_back(side[i]);
    }
  }
  lazy::Record& record = lazy::Record::of(first[0], "a list");
  LazyExpr result;
  record.call(record.own_cell(which, each), operands, {}, list, {&result, 1}, from);
  return result;
}

}  // namespace

LazyExpr max(std::span<const LazyExpr> terms, std::source_location from) {
  width_of_list("max", "operand", terms);
  return joined(op::maximum, terms, from);
}

LazyExpr log_sum_exp(std::span<const LazyExpr> terms, std::source_location from) {
  width_of_list("log_sum_exp", "operand", terms);
  return joined(op::log_add_exp, terms, from);
}

std::vector<LazyExpr> softmax(std::span<const LazyExpr> terms, std::source_location from) {
  width_of_list("softmax", "operand", terms);
  const LazyExpr top = apply(op::stop_gradient, {joined(op::maximum, terms, from)}, {}, {}, from);
  std::vector<LazyExpr> shares;
  for (const LazyExpr& term : terms) {
    shares.push_back(apply(op::exp, {apply(op::sub, {term, top}, {}, {}, from)}, {}, {}, from));
  }
  const LazyExpr all = sum(shares, from);
  for (LazyExpr& share : shares) share = apply(op::div, {share, all}, {}, {}, from);
  return shares;
}

LazyExpr weighted_sum(ListOf<LazyExpr> weights, ListOf<LazyExpr> values, std::source_location from) {
  check_weighted_sum<LazyExpr>("weighted_sum", weights, values);
  return called(lazy::OwnCell::weighted_sum, {values[0].width(), 1}, {}, {values, weights}, from);
}

LazyExpr dot_attention(const LazyExpr& query, ListOf<LazyExpr> keys, ListOf<LazyExpr> values, ListOf<LazyExpr> masks,
                       std::source_location from) {
  check_attention<LazyExpr>("dot_attention", query, keys, values, masks);
  std::vector<Index> each = {keys[0].width(), values[0].width()};
  if (!masks.empty()) each.push_back(1);
  const lazy::OperandRef operand = query;
  return called(lazy::OwnCell::attention, each, {&operand, 1}, {keys, values, masks}, from);
}

LazyExpr k_max(std::span<const LazyExpr> terms, Index k, std::source_location from) {
  const Index width = width_of_list("k_max", "operand", terms);
  check_k_max("k_max", k, terms.size());
  return in_a_tree({terms.begin(), terms.end()}, [&](const LazyExpr& x, const LazyExpr& y) {
    const LazyExpr both = apply(op::concat, {x, y}, {}, {}, from);
    if (both.width() <= k * width) return both;
    return apply(op::top_k, {both}, {}, op::largest(k, width, op::Order::by_place), from);
  });
}

std::vector<LazyExpr> conv1d(std::span<const LazyExpr> values, const Parameter& filters, Index window,
                             std::source_location from) {
  const Index width = width_of_list("conv1d", "value", values);
  if (window < 1 || filters.type().rows != Rows::count(window * width)) {
    throw MisuseError("conv1d: values of width " + std::to_string(width) + ", a window of " + std::to_string(window) +
                      ", filters " + to_string(filters.type()) +
                      "; expected a window of 1 or more, and window * width rows of filters");
  }
  const auto count = static_cast<Index>(values.size());
  const std::vector<float> zeros(static_cast<std::size_t>(width), 0);
  const LazyExpr outside = lazy::Record::of(values[0], "conv1d").add_input(zeros, from);
  std::vector<LazyExpr> results;
  for (Index i = 0; i < count; ++i) {
    std::vector<LazyOperand> seen;
    for (Index at = i - (window - 1) / 2; static_cast<Index>(seen.size()) < window; ++at) {
      seen.emplace_back(0 <= at && at < count ? values[static_cast<std::size_t>(at)] : outside);
    }
    results.push_back(apply(op::matmul, {concat(seen, from), filters}, {}, {}, from));
  }
  return results;
}

LazyExpr embedding_bag(const Parameter& table, std::span<const LazyIndex> rows, std::source_location from) {
  if (rows.empty()) throw MisuseError("embedding_bag of no rows; expected one or more");
  std::vector<LazyExpr> found;
  for (const LazyIndex& row : rows) found.push_back(embedding(table, row, from));
  return sum(found, from);
}

}  // namespace windrow
