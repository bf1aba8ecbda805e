// Building blocks for networks of your own: LSTM and GRU, attention, conditional random fields. Start here.
//
// Names of parameters: a block that was made with NAME names its parameters "NAME ROLE", as parameter_name() does, so
// Lstm(parameters, "encoder", ...) adds "encoder in", "encoder recurrent" and "encoder bias". A role is a word, or
// several joined by _ (Gru's "recurrent bias" is older than this rule). A block within a block is named "NAME PART".
// Tree-LSTMs may have no name; then a parameter's name is its role. Checkpoints contain these names, so a role never
// changes.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cmath>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "windrow/batching/expr.h"
#include "windrow/batching/expression_operators.h"
#include "windrow/batching/lazy_cell.h"
#include "windrow/batching/parameters.h"

namespace windrow {

/// "BLOCK ROLE", or ROLE alone for a block without a name. A blank at the end of the block's name is not doubled.
inline std::string parameter_name(const std::string& block, const std::string& role) {
  return block.empty() || block.back() == ' ' ? block + role : block + " " + role;
}

// One step of an LSTM (Hochreiter and Schmidhuber 1997, with the forget gates of Gers et al. 2000), and of a gated
// recurrent unit (Cho et al. 2014): for lazy expressions, and for vertex functions whose first child is the previous
// step. And the rates of dropout that models share.

/// A value.
struct DropoutRates {
  double element = 0;  ///< of elements
  double word = 0;     ///< of words as a whole

  /// The embedding of a word, with both.
  auto of_word(const auto& embedded) const {
    return dropout(dropout(embedded, {.rate = word, .of = Dropout::Of::row}), element);
  }
};

/// A handle to its parameters.
///
/// The product with the input is separate from the product with the state: if the input depends on no child, its
/// product is computed for all steps at once.
class Lstm {
 public:
  struct Sizes {
    Index from, hidden;  ///< widths of inputs and states
  };

  /// Adds its parameters, named by parameter_name(). Throws MisuseError if these names are taken. Forget gates start
  /// with bias 1 (Jozefowicz et al. 2015).
  Lstm(Parameters& parameters, const std::string& name, Sizes sizes);

  Index hidden() const { return sizes_.hidden; }
  /// The product of an input with the input weights, for cell() and step().
  auto project(const auto& x) const { return matmul(x, in_); }
  /// The new hidden and cell states, from the previous ones and a projected input. For expressions of any kind.
  template <class Expression>
  std::pair<Expression, Expression> cell(const Expression& projected, const Expression& hidden,
                                         const Expression& cell) const {
    const Index h = sizes_.hidden;
    const Expression gates = projected + matmul(hidden, recurrent_) + bias_;
    const Expression in = sigmoid(slice(gates, 0, h)), out = sigmoid(slice(gates, h, 2 * h));
    const Expression keep = sigmoid(slice(gates, 2 * h, 3 * h));
    const Expression c = in * tanh(slice(gates, 3 * h, 4 * h)) + keep * cell;
    return {out * tanh(c), c};
  }
  /// Declares its states: `name` (hidden) and `name` + " cell".
  auto states(auto& v, const std::string& name) const {
    return std::pair(v.state(name, sizes_.hidden), v.state(name + " cell", sizes_.hidden));
  }
  /// Computes a step from the states of child 0 (zero without child 0) and a projected input. Scatters the new states,
  /// and returns the hidden one.
  auto step(auto& v, const auto& states, const auto& projected) const {
    const auto& [h_of, c_of] = states;
    const auto [own, c] = cell(projected, v.gather(0, h_of), v.gather(0, c_of));
    v.scatter(h_of, own);
    v.scatter(c_of, c);
    return own;
  }

  /// Floating point operations of the forward products: 8 h `from` per step, and 8 h^2 per step except the first one of
  /// each sequence (h: hidden size).
  double flops(std::int64_t steps, std::int64_t sequences = 1) const;

 private:
  Sizes sizes_;
  Parameter in_, recurrent_, bias_;
};

/// A handle to its parameters.
///
/// The reset gate is applied to the product of the state instead of the state, so one product serves all gates. This is
/// the second variant of Cho et al., which cuDNN and PyTorch compute. As for Lstm, the product with the input is
/// separate from that with the state.
class Gru {
 public:
  struct Sizes {
    Index from, hidden;  ///< widths of inputs and states
  };

  /// Adds its parameters, named by parameter_name(). Throws MisuseError if these names are taken.
  Gru(Parameters& parameters, const std::string& name, Sizes sizes);

  Index hidden() const { return sizes_.hidden; }
  /// The product of an input with the input weights, for cell() and step().
  auto project(const auto& x) const { return matmul(x, in_); }
  /// The new state, from the previous one and a projected input. For expressions of any kind.
  template <class Expression>
  Expression cell(const Expression& projected, const Expression& hidden) const {
    const Index h = sizes_.hidden;
    const Expression from_input = projected + bias_, from_state = matmul(hidden, recurrent_) + recurrent_bias_;
    const Expression gates = sigmoid(slice(from_input, 0, 2 * h) + slice(from_state, 0, 2 * h));
    const Expression reset = slice(gates, 0, h), keep = slice(gates, h, 2 * h);
    const Expression fresh = tanh(slice(from_input, 2 * h, 3 * h) + reset * slice(from_state, 2 * h, 3 * h));
    return fresh + keep * (hidden - fresh);
  }
  /// Declares its state.
  auto state(auto& v, const std::string& name) const { return v.state(name, sizes_.hidden); }
  /// Computes a step from the state of child 0 (zero without child 0) and a projected input. Scatters and returns the
  /// new state.
  auto step(auto& v, const auto& state, const auto& projected) const {
    const auto own = cell(projected, v.gather(0, state));
    v.scatter(state, own);
    return own;
  }

  /// Floating point operations of the forward products: 6 h `from` per step, and 6 h^2 per step except the first one of
  /// each sequence (h: hidden size).
  double flops(std::int64_t steps, std::int64_t sequences = 1) const;

 private:
  Sizes sizes_;
  Parameter in_, recurrent_, bias_, recurrent_bias_;
};

// Attention of a query to keys: lists of expressions, of any length. In vertex functions and cells, a value of edges in
// a list stands for the values of all children; see expr.h.
//
//   const auto found = attend(AdditiveAttention(...), query, keys, values);
//   const auto among_all = attend(DotAttention(), own, {v.each(h), own}, {v.each(h), own});  // children and itself
//   const auto of_two = attend(DotAttention(), own, {left, right}, {left, right});
//
// A score tells how well a key fits a query; the result is the sum of the values by the softmax of the scores.
// project() computes the part that depends only on the query, once.

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
  /// Adds its parameters, named by parameter_name(). Throws MisuseError if these names are taken.
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

/// Attends to lists of equal length, which are not empty; a key of edges needs a value of edges. `masks`, of width 1,
/// are added to the scores, if there are any: -1e30 hides a key, 0 does not. For expressions of any kind. The result is
/// zero for a vertex without children if all keys are of edges. Throws MisuseError for other lengths and widths.
template <class Attention, class Expression>
requires std::same_as<Expression, Expr> || std::same_as<Expression, LazyExpr> Expression
attend(const Attention& attention, const Expression& query, ListOf<std::type_identity_t<Expression>> keys,
       ListOf<std::type_identity_t<Expression>> values, ListOf<std::type_identity_t<Expression>> masks = {}) {
  if (!masks.empty() && masks.size() != keys.size()) {
    throw MisuseError("attend: " + std::to_string(masks.size()) + " masks for " + std::to_string(keys.size()) +
                      " keys; expected as many");
  }
  const Expression projected = attention.project(query);
  if constexpr (std::same_as<Attention, DotAttention>) return dot_attention(projected, keys, values, masks);
  std::vector<Expression> scores;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    scores.push_back(attention.score(projected, keys[i]));
    if (!masks.empty()) scores.back() = scores.back() + masks[i];
  }
  return weighted_sum(softmax(scores), values);
}

/// Attends to one key: to all children, if keys and values are of edges, such as Vertex::each returns them.
template <class Attention>
Expr attend(const Attention& attention, const Expr& query, const Expr& keys, const Expr& values,
            const std::optional<Expr>& mask = std::nullopt) {
  if (mask) return attend(attention, query, ListOf<Expr>{keys}, ListOf<Expr>{values}, ListOf<Expr>{*mask});
  return attend(attention, query, ListOf<Expr>{keys}, ListOf<Expr>{values});
}

// A linear-chain conditional random field over the tags of a sequence (Lafferty, McCallum and Pereira 2001), for vertex
// functions and lazy expressions.
//
// The score of a sequence of tags is the sum of the emissions of its tags, the transitions between neighbours, and the
// start and stop scores. The loss of a sequence is the logarithm of the sum of exp(score) over all sequences of tags,
// minus the score of the gold sequence:
//
//   LazyExpr alpha = crf.first(emissions[0]), gold = crf.first_score(emissions[0], tag[0]);
//   for (t = 1; t < n; ++t) {
//     alpha = crf.next(alpha, emissions[t]);
//     gold = gold + crf.next_score(emissions[t], tag[t - 1], tag[t]);
//   }
//   loss = crf.log_partition(alpha) - (gold + crf.last_score(tag[n - 1]));
//
// Decoding replaces the sums by maxima (Viterbi 1967). Call best_first() for the first word, best_next() and
// came_from() for each other word, and best_last() after the last one. Then the host follows the results back, by
// before().

/// A handle to its parameters. Emissions have a column for each tag. Tags are index operands, and not -1.
class Crf {
 public:
  /// Adds its parameters, zeros, named by parameter_name(). Throws MisuseError if these names are taken. A transition
  /// of -1e30 is forbidden.
  Crf(Parameters& parameters, const std::string& name, Index tags);

  Index tags() const { return transitions_.type().width; }

  // The forward algorithm: the logarithm of the sum over all sequences up to a word that end in each tag.
  auto first(const auto& emissions) const { return emissions + start_; }
  template <class Expression>
  Expression next(const Expression& alpha, const Expression& emissions) const {
    return log_matmul(alpha, transitions_) + emissions;
  }
  /// Takes the alpha of the last word. Of width 1.
  auto log_partition(const auto& alpha) const { return log_matmul(alpha, stop_); }

  // The terms that a word, and the end, add to the score of the gold sequence; of width 1.
  auto first_score(const auto& emissions, const auto& tag) const { return pick(emissions + start_, tag); }
  auto next_score(const auto& emissions, const auto& before, const auto& tag) const {
    return pick(emissions + embedding(transitions_, before), tag);
  }
  auto last_score(const auto& tag) const { return embedding(stop_, tag); }

  // Decoding, without gradients: the best score up to a word, for each tag in which it ends.
  auto best_first(const auto& emissions) const { return stop_gradient(first(emissions)); }
  template <class Expression>
  Expression best_next(const Expression& best, const Expression& emissions) const {
    return stop_gradient(max_matmul(best, transitions_) + emissions);
  }
  /// For each tag of a word, the tag before it in the best sequence, as a float.
  auto came_from(const auto& best_before) const { return argmax_matmul(best_before, transitions_); }
  /// The last tag of the best sequence, as a float of width 1.
  auto best_last(const auto& best) const { return argmax_matmul(best, stop_); }

  /// The tag before `tag` in the best sequence: an element of the row that came_from() has computed.
  static std::int32_t before(std::span<const float> came_from, std::int32_t tag) {
    return static_cast<std::int32_t>(came_from[static_cast<std::size_t>(tag)]);
  }

 private:
  Parameter transitions_, start_, stop_;  // from each row's tag to each column's; a row; a column
};

}  // namespace windrow
