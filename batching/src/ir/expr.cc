// Applying operators to expressions, and operators that are not in expression_operators.h.
#include "windrow/batching/expr.h"

#include <algorithm>
#include <limits>

#include "ir/lists.h"
#include "ir/tracing.h"

namespace windrow {

Operand::Operand(const Parameter& parameter)
    : set_(parameter.set_), parameter_(parameter.number_), name_(parameter.name_), type_(parameter.type_) {}

Expr apply(const Operator& op, std::span<const Operand> in, std::span<const IndexExpr> indices,
           const Attributes& attributes) {
  return ir::Tracing::of(std::string(op.name.text()), in, indices)->apply(op, in, indices, attributes);
}
template <class>
Expr apply(const Operator& op, std::initializer_list<Operand> in, std::initializer_list<IndexExpr> indices,
           const Attributes& attributes) {
  return apply(op, std::span(in.begin(), in.size()), std::span(indices.begin(), indices.size()), attributes);
}
template Expr apply(const Operator&, std::initializer_list<Operand>, std::initializer_list<IndexExpr>,
                    const Attributes&);

Expr ExprTypes::apply(const Operator& op, const Operand&, std::initializer_list<Operand> in,
                      std::initializer_list<IndexExpr> indices, const Attributes& attributes) {
  return windrow::apply(op, in, indices, attributes);
}
Index ExprTypes::width(const Expr& x) { return x.width(); }

namespace {

std::shared_ptr<ir::Tracing> tracing_of(std::string_view what, const Operand& x) {
  return ir::Tracing::of(std::string(what), {&x, 1}, {});
}

/// Whether x is a column of vertices or edges, and `other` is wider. False for parameters, which apply() accepts as
/// they are.
bool is_column(const Operand& x, const Operand& other) {
  return !x.type().rows.counted() && x.type().width == 1 && other.type().width != 1;
}

/// x; if it is a column, spread over the width of `other`.
Operand in_shape_of(const Operand& other, const Operand& x) {
  if (!is_column(x, other)) return x;
  return apply(op::spread_columns, {x}, {}, op::to_width(other.type().width));
}

}  // namespace

Expr ExprTypes::elementwise(const Operator& op, const Operand& x, const Operand& y) {
  const bool product = &op == &op::mul;
  if (product && is_column(y, x)) return apply(op::mul_columns, x, {x, y});
  if (product && is_column(x, y)) return apply(op::mul_columns, y, {y, x});
  return apply(op, x, {in_shape_of(y, x), in_shape_of(x, y)});
}
Expr concat(std::span<const Operand> parts) {
  if (parts.empty()) throw MisuseError("concat of no expressions; expected one or more");
  return apply(op::concat, parts);
}
Expr concat(std::span<const Expr> parts) {
  return concat(std::span<const Operand>(std::vector<Operand>(parts.begin(), parts.end())));
}
Expr embedding(const Operand& table, const IndexExpr& row) { return apply(op::embedding, {table}, {row}); }
Expr embedding_bag(const Operand& table, const IndexExpr& rows) { return apply(op::embedding_bag, {table}, {rows}); }
Expr mean(const Expr& x) {
  if (x.width() == 0) throw MisuseError("mean: operand " + to_string(x.type()) + "; expected a column or more");
  return 1 / static_cast<double>(x.width()) * row_sum(x);
}

Expr ExprTypes::dropout(const Expr& x, const Dropout& how) { return tracing_of("dropout", x)->dropout(x, how); }

/// The sum or the maximum over all children.
static Expr over_children(const char* what, const Operator& op, const Expr& x) {
  return tracing_of(what, x)->over_children(what, op, x);
}
Expr sum_children(const Expr& x) { return over_children("sum_children", op::segment_sum, x); }
Expr mean_children(const Expr& x) {
  const Expr sum = over_children("mean_children", op::segment_sum, x);
  const Expr share = tracing_of("mean_children", x)->share_of_child();
  return sum * apply(op::spread_columns, {share}, {}, op::to_width(x.width()));
}
Expr max_children(const Expr& x) { return over_children("max_children", op::segment_max, x); }
Expr k_max_children(const Expr& x, Index k) {
  if (k < 1) throw MisuseError("k_max_children: k " + std::to_string(k) + "; expected 1 or more");
  constexpr double chosen = 1e30;  // subtracted from chosen elements
  const auto tracing = tracing_of("k_max_children", x);
  std::vector<Operand> tops = {max_children(x)};
  Expr left = x, unchosen = tracing->constant_of_edges(x.width(), 1);
  while (static_cast<Index>(tops.size()) < k) {
    const Expr first = stop_gradient(tracing->is_first_maximum(left));
    left = left - chosen * first;
    unchosen = unchosen - first;
    tops.push_back(max_children(left) * stop_gradient(relu(max_children(unchosen))));
  }
  return concat(tops);
}
Expr log_sum_exp_children(const Expr& x) {
  tracing_of("log_sum_exp_children", x)->check_of_edges("log_sum_exp_children", x);
  return log_sum_exp({x});
}
Expr softmax_children(const Expr& x) {
  tracing_of("softmax_children", x)->check_of_edges("softmax_children", x);
  return softmax({x})[0];
}
Expr to_children(const Expr& x) { return tracing_of("to_children", x)->to_children(x); }

// Lists, in which a value of edges stands for the values of all children.

namespace {

bool is_of_edges(const Expr& x) { return x.type().rows == Rows::edges(); }

/// The beginning of error texts.
std::string told_of(const char* what, std::span<const Expr> list) {
  return list.empty() ? what : tracing_of(what, list[0])->function.name + ": " + what;
}

void check_terms(const char* what, std::span<const Expr> terms) {
  width_of_list(told_of(what, terms), "operand", terms);
}

/// A column of ones for each child.
Expr one_for_each_child(const Expr& term) { return tracing_of("a list", term)->constant_of_edges(1, 1); }

/// The sum of the terms, each of which `over_children` reduces first if it is of edges.
template <class OverChildren, class Join>
Expr reduced(std::span<const Expr> terms, OverChildren over_children, Join join) {
  const auto of = [&](const Expr& term) { return is_of_edges(term) ? over_children(term) : term; };
  Expr result = of(terms[0]);
  for (const Expr& term : terms.subspan(1)) result = join(result, of(term));
  return result;
}

Expr added(std::span<const Expr> terms) {
  return reduced(terms, sum_children, [](const Expr& x, const Expr& y) { return x + y; });
}

Expr largest(std::span<const Expr> terms) {
  const bool all_of_edges = std::ranges::all_of(terms, is_of_edges);
  const auto over_children = [&](const Expr& term) {
    const Expr top = max_children(term);
    if (all_of_edges) return top;
    // Without children, their maximum of 0 must not count, so it is lowered below all terms, but stays finite.
    constexpr double below = -1e30;
    return top + scale_shift(max_children(one_for_each_child(term)), -below, below);
  };
  return reduced(terms, over_children, [](const Expr& x, const Expr& y) { return maximum(x, y); });
}

}  // namespace

Expr sum(std::span<const Expr> terms) {
  check_terms("sum", terms);
  return added(terms);
}
Expr mean(std::span<const Expr> terms) {
  check_terms("mean", terms);
  const auto of_edges = std::ranges::count_if(terms, is_of_edges), others = std::ssize(terms) - of_edges;
  if (of_edges == 0) return 1 / static_cast<double>(others) * added(terms);
  if (others == 0) {
    const double share = 1 / static_cast<double>(of_edges);
    return share * reduced(terms, mean_children, [](const Expr& x, const Expr& y) { return x + y; });
  }
  const Expr children = sum_children(one_for_each_child(*std::ranges::find_if(terms, is_of_edges)));
  return added(terms) / scale_shift(children, static_cast<double>(of_edges), static_cast<double>(others));
}
Expr max(std::span<const Expr> terms) {
  check_terms("max", terms);
  return largest(terms);
}
Expr log_sum_exp(std::span<const Expr> terms) {
  check_terms("log_sum_exp", terms);
  const Expr top = stop_gradient(largest(terms));
  // The number that is subtracted is finite, so if all terms are -inf, or there are none, the sum is 0. It counts as 1:
  // then the result is `top`, and no term gets a gradient.
  constexpr double most = std::numeric_limits<float>::max();
  std::vector<Expr> shares;
  for (const Expr& term : terms) shares.push_back(exp(term - clamp(top, -most, most)));
  return log(maximum(added(shares), tracing_of("log_sum_exp", top)->constant(top.width(), 1))) + top;
}
std::vector<Expr> softmax(std::span<const Expr> terms) {
  check_terms("softmax", terms);
  const Expr top = stop_gradient(largest(terms));
  std::vector<Expr> shares;
  for (const Expr& term : terms) shares.push_back(exp(term - top));
  const Expr all = added(shares);
  for (Expr& share : shares) share = share / all;
  return shares;
}
Expr k_max(std::span<const Expr> terms, Index k) {
  check_terms("k_max", terms);
  check_k_max(told_of("k_max", terms), k, terms.size());
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (!is_of_edges(terms[i])) continue;
    throw MisuseError(told_of("k_max", terms) + ": " + in_list("operand", i, terms[i]) +
                      "; expected values of the vertex, or k_max_children()");
  }
  return top_k(concat(terms), k, terms[0].width(), op::Order::by_place);
}
Expr weighted_sum(ListOf<Expr> weights, ListOf<Expr> values) {
  check_weighted_sum<Expr>(told_of("weighted_sum", values), weights, values);
  std::vector<Expr> products;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_of_edges(weights[i]) != is_of_edges(values[i])) {
      throw MisuseError(told_of("weighted_sum", values) + ": " + in_list("weight", i, weights[i]) + ", " +
                        in_list("value", i, values[i]) + "; expected both of edges, or both of the vertex");
    }
    products.push_back(mul_columns(values[i], weights[i]));
  }
  return added(products);
}
Expr dot_attention(const Expr& query, ListOf<Expr> keys, ListOf<Expr> values, ListOf<Expr> masks) {
  check_attention<Expr>(told_of("dot_attention", {&query, 1}), query, keys, values, masks);
  std::vector<Expr> scores;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    scores.push_back(row_dot(query, keys[i]));
    if (!masks.empty()) scores.back() = scores.back() + masks[i];
  }
  return weighted_sum(softmax(scores), values);
}

}  // namespace windrow
