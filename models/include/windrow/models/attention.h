// Attention of a query to keys: to a list of lazy expressions, or to the values of a vertex's edges. Any number of
// keys.
//
//   const auto found = attend(AdditiveAttention(...), query, keys, values);
//
// A score tells how well a key fits a query; the result is the sum of the values by the softmax of the scores. What
// depends on the query alone is computed once, by project().
#pragma once
#include "windrow/engine/requirements.h"

#include <cmath>
#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "windrow/batching/expr.h"
#include "windrow/batching/lazy_lists.h"
#include "windrow/batching/parameters.h"

namespace windrow {

/// Scores by the dot product of a query and a key of one width, divided by the root of the width (Vaswani et al. 2017).
/// Keys and values are not copied for each query. A value.
struct DotAttention {
  auto project(const auto& query) const { return query * (1 / std::sqrt(static_cast<double>(query.width()))); }
  template <class Expression>
  Expression score(const Expression& projected, const Expression& key) const {
    return row_dot(projected, key);
  }
};

/// Scores by a network with one hidden layer: tanh(query Wq + key Wk) v (Bahdanau, Cho and Bengio 2015). A handle to
/// its parameters.
class AdditiveAttention {
 public:
  struct Sizes {
    Index query, key, hidden;  ///< widths
  };
  /// Adds its parameters, with names that begin with `name`. Throws MisuseError if these are taken.
  AdditiveAttention(Parameters& parameters, const std::string& name, Sizes sizes);

  auto project(const auto& query) const { return matmul(query, query_); }
  template <class Expression>
  Expression score(const Expression& projected, const Expression& key) const {
    return score_projected(projected, project_key(key));
  }
  // The same in two steps, for keys that many queries are compared with.
  auto project_key(const auto& key) const { return matmul(key, key_); }
  template <class Expression>
  Expression score_projected(const Expression& projected, const Expression& projected_key) const {
    return matmul(tanh(projected + projected_key), score_);
  }

 private:
  Parameter query_, key_, score_;
};

/// Attends to lists of one length, which are not empty. `masks` are added to the scores, if there are any: -1e30 hides
/// a key, 0 does not. Throws MisuseError for other lengths and widths.
template <class Attention>
LazyExpr attend(const Attention& attention, const LazyExpr& query, std::span<const LazyExpr> keys,
                std::span<const LazyExpr> values, std::span<const LazyExpr> masks = {}) {
  if (!masks.empty() && masks.size() != keys.size()) {
    throw MisuseError("attend: " + std::to_string(masks.size()) + " masks for " + std::to_string(keys.size()) +
                      " keys; expected as many");
  }
  const LazyExpr projected = attention.project(query);
  if constexpr (std::same_as<Attention, DotAttention>) return dot_attention(projected, keys, values, masks);
  std::vector<LazyExpr> scores;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    scores.push_back(attention.score(projected, keys[i]));
    if (!masks.empty()) scores.back() = scores.back() + masks[i];
  }
  return weighted_sum(softmax(scores), values);
}

/// Attends from a vertex to its edges: the query is a value of the vertex, keys and values are values of its edges,
/// such as Vertex::each returns them. Zero for a vertex without children. `mask` is added to the scores: a value of
/// edges of width 1, in which -1e30 hides a key and 0 does not.
template <class Attention>
Expr attend(const Attention& attention, const Expr& query, const Expr& keys, const Expr& values,
            const std::optional<Expr>& mask = std::nullopt) {
  const Expr scores = attention.score(attention.project(query), keys);
  return sum_children(mul_columns(values, softmax_children(mask ? scores + *mask : scores)));
}

}  // namespace windrow
