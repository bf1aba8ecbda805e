// One step of an LSTM (Hochreiter and Schmidhuber 1997, with the forget gates of Gers et al. 2000), for vertex
// functions whose first child is the step before.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "windrow/batching/parameters.h"
#include "windrow/batching/vertex_function.h"

namespace windrow {

/// A handle to its parameters.
///
/// The input's product stands for itself, since it often depends on no child: then it is computed for all steps at
/// once.
class Lstm {
 public:
  struct Sizes {
    Index from, hidden;  ///< widths of inputs and states
  };

  /// Adds its parameters, by names that begin with `name`.
  Lstm(Parameters& parameters, const std::string& name, Sizes sizes);

  Index hidden() const { return sizes_.hidden; }
  /// What a step makes of its input.
  auto project(const auto& x) const { return matmul(x, in_); }
  /// Declares its states, `name` and `name` + " cell".
  auto states(auto& v, const std::string& name) const {
    return std::pair(v.state(name, sizes_.hidden), v.state(name + " cell", sizes_.hidden));
  }
  /// Gathers what child 0 scattered as these, zero if there is none, and scatters the same; gives what it has as the
  /// first.
  auto step(auto& v, const auto& states, const auto& projected) const {
    const Index h = sizes_.hidden;
    const auto& [h_of, c_of] = states;
    const auto gates = projected + matmul(v.gather(0, h_of), recurrent_) + bias_;
    const auto in = sigmoid(slice(gates, 0, h)), out = sigmoid(slice(gates, h, 2 * h));
    const auto keep = sigmoid(slice(gates, 2 * h, 3 * h));
    const auto c = in * tanh(slice(gates, 3 * h, 4 * h)) + keep * v.gather(0, c_of);
    const auto own = out * tanh(c);
    v.scatter(h_of, own);
    v.scatter(c_of, c);
    return own;
  }

  /// Floating point operations of products, forward: 8 h from a step, and 8 h^2 each that has one before it, which the
  /// first of a sequence has not.
  double flops(std::int64_t steps, std::int64_t sequences = 1) const;

 private:
  Sizes sizes_;
  Parameter in_, recurrent_, bias_;
};

}  // namespace windrow
