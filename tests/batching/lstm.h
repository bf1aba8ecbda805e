// An LSTM cell (Hochreiter and Schmidhuber 1997) for tests. Its values can be expressions of a vertex, rows of the
// oracle, or lazy expressions.
#pragma once

#include <string>

#include "windrow/batching/parameters.h"

namespace windrow::testing {

struct Lstm {
  template <class Value>
  struct State {
    Value h, c;
  };

  Lstm(Parameters& p, const std::string& name, Index in, Index width)
      : h(width),
        w(p.add(name + "_w", in + h, 4 * h, Initial::uniform(-1, 1))),
        b(p.add(name + "_b", 1, 4 * h, Initial::uniform(-1, 1))) {}

  template <class Value>
  State<Value> operator()(const Value& x, const State<Value>& before) const {
    const auto gates = matmul(concat(x, before.h), w) + b;
    const auto gate = [&](Index k) { return slice(gates, k * h, (k + 1) * h); };
    const auto c = sigmoid(gate(0)) * tanh(gate(1)) + sigmoid(gate(2)) * before.c;
    return {sigmoid(gate(3)) * tanh(c), c};
  }

  /// The cell as a vertex: takes the previous state from child k, and scatters its own state.
  auto step(auto& v, const auto& x, std::size_t k) const {
    const auto h_of = v.state("h", h), c_of = v.state("c", h);
    const auto own = (*this)(x, {v.gather(k, h_of), v.gather(k, c_of)});
    v.scatter(h_of, own.h);
    v.scatter(c_of, own.c);
    return own;
  }

  const Index h;
  const Parameter w, b;
};

}  // namespace windrow::testing
