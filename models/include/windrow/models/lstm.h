// One step of an LSTM (Hochreiter and Schmidhuber 1997, with the forget gates of Gers et al. 2000), and of a gated
// recurrent unit (Cho et al. 2014): for lazy expressions, and for vertex functions whose first child is the previous
// step. And the rates of dropout that models share.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <string>
#include <utility>

#include "windrow/batching/expression_operators.h"
#include "windrow/batching/parameters.h"

namespace windrow {

/// A value.
struct DropoutRates {
  double element = 0;  ///< of elements
  double word = 0;     ///< of words as a whole

  /// The embedding of a word, with both.
  auto of_word(const auto& embedded) const {
    return dropout(dropout(embedded, {.rate = word, .of = Dropout::Of::row}), {.rate = element});
  }
};

/// A handle to its parameters.
///
/// The product with the input is separate from that with the state, since the input often depends on no child: then it
/// is computed for all steps at once.
class Lstm {
 public:
  struct Sizes {
    Index from, hidden;  ///< widths of inputs and states
  };

  /// Adds its parameters, with names that begin with `name`. Throws MisuseError if these are taken. Forget gates start
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
/// The reset gate is applied to the product of the state, and not to the state before it, so one product serves all
/// gates (the second variant of Cho et al., which cuDNN and PyTorch compute). As for Lstm, the product with the input
/// is separate from that with the state.
class Gru {
 public:
  struct Sizes {
    Index from, hidden;  ///< widths of inputs and states
  };

  /// Adds its parameters, with names that begin with `name`. Throws MisuseError if these are taken.
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

}  // namespace windrow
