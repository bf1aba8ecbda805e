// One step of a gated recurrent unit (Cho et al. 2014): for lazy expressions, and for vertex functions whose first
// child is the previous step.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <string>

#include "windrow/batching/parameters.h"

namespace windrow {

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
