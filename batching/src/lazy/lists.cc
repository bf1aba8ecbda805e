// Functions of lists of lazy expressions.
#include <string>

#include "lazy/record.h"
#include "windrow/batching/lazy_cell.h"

namespace windrow {
namespace {

/// Throws MisuseError unless the list has terms of one width. Returns the width.
Index width_of(const char* what, std::span<const LazyExpr> terms) {
  if (terms.empty()) throw MisuseError(std::string(what) + " of no expressions; expected one or more");
  const Index width = terms[0].width();
  for (const LazyExpr& term : terms) {
    if (term.width() == width) continue;
    throw MisuseError(std::string(what) + " of expressions of widths " + std::to_string(width) + " and " +
                      std::to_string(term.width()) + "; expected one width");
  }
  return width;
}

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

/// A call of a cell for the list that these make side by side.
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
  width_of("max", terms);
  return joined(op::maximum, terms, from);
}

LazyExpr log_sum_exp(std::span<const LazyExpr> terms, std::source_location from) {
  width_of("log_sum_exp", terms);
  return joined(op::log_add_exp, terms, from);
}

std::vector<LazyExpr> softmax(std::span<const LazyExpr> terms, std::source_location from) {
  width_of("softmax", terms);
  const LazyExpr top = apply(op::stop_gradient, {joined(op::maximum, terms, from)}, {}, {}, from);
  std::vector<LazyExpr> shares;
  for (const LazyExpr& term : terms) {
    shares.push_back(apply(op::exp, {apply(op::sub, {term, top}, {}, {}, from)}, {}, {}, from));
  }
  const LazyExpr all = sum(shares, from);
  for (LazyExpr& share : shares) share = apply(op::div, {share, all}, {}, {}, from);
  return shares;
}

LazyExpr weighted_sum(std::span<const LazyExpr> weights, std::span<const LazyExpr> values, std::source_location from) {
  if (weights.size() != values.size()) {
    throw MisuseError("weighted_sum of " + std::to_string(values.size()) + " expressions by " +
                      std::to_string(weights.size()) + " weights; expected as many");
  }
  const std::vector<Index> each = {width_of("weighted_sum", values), width_of("weighted_sum", weights)};
  if (each[1] != 1) {
    throw MisuseError("weighted_sum: weights of width " + std::to_string(each[1]) + "; expected 1");
  }
  return called(lazy::OwnCell::weighted_sum, each, {}, {values, weights}, from);
}

LazyExpr dot_attention(const LazyExpr& query, std::span<const LazyExpr> keys, std::span<const LazyExpr> values,
                       std::span<const LazyExpr> masks, std::source_location from) {
  const auto refuse = [](const std::string& why) { throw MisuseError("dot_attention: " + why); };
  const auto require_count = [&](const char* what, std::size_t count) {
    if (count == keys.size()) return;
    refuse(std::to_string(count) + " " + what + " for " + std::to_string(keys.size()) + " keys; expected as many");
  };
  require_count("values", values.size());
  std::vector<Index> each = {width_of("dot_attention", keys), width_of("dot_attention", values)};
  if (query.width() != each[0]) {
    refuse("a query of width " + std::to_string(query.width()) + " and keys of width " + std::to_string(each[0]) +
           "; expected one width");
  }
  if (!masks.empty()) {
    require_count("masks", masks.size());
    each.push_back(width_of("dot_attention", masks));
    if (each[2] != 1) refuse("masks of width " + std::to_string(each[2]) + "; expected 1");
  }
  const lazy::OperandRef operand = query;
  return called(lazy::OwnCell::attention, each, {&operand, 1}, {keys, values, masks}, from);
}

LazyExpr k_max(std::span<const LazyExpr> terms, Index k, std::source_location from) {
  const Index width = width_of("k_max", terms);
  if (k < 1 || static_cast<Index>(terms.size()) < k) {
    throw MisuseError("k_max of " + std::to_string(terms.size()) + " expressions: k " + std::to_string(k) +
                      "; expected 1 to " + std::to_string(terms.size()));
  }
  return in_a_tree({terms.begin(), terms.end()}, [&](const LazyExpr& x, const LazyExpr& y) {
    const LazyExpr both = apply(op::concat, {x, y}, {}, {}, from);
    if (both.width() <= k * width) return both;
    return apply(op::top_k, {both}, {}, op::largest(k, width, op::Order::by_place), from);
  });
}

std::vector<LazyExpr> conv1d(std::span<const LazyExpr> values, const Parameter& filters, Index window,
                             std::source_location from) {
  const Index width = width_of("conv1d", values);
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
