// Random programs of operators, for a body of a Static and for fresh runs of the same.
#pragma once

#include <vector>

#include "windrow/ops/apply.h"
#include "windrow/ops/random.h"
#include "windrow/ops/static.h"

namespace windrow::testing {

/// A program of random operators on 3 x 4 matrices, with results and state of its own.
class RandomOperators {
 public:
  using Floats = std::vector<float>;

  RandomOperators(const Device& host, std::uint32_t seed)
      : host_(host), seed_(seed), draws_(*host.engine, seed), state(host, 3, 4, "state") {
    state.set(Floats(12, 0.5f));
  }

  std::vector<Tensor> run(const StaticInputs& inputs) {
    next_ = seed_;
    std::vector<Tensor> values = {inputs.in[0], inputs.in[1]}, held;
    for (int i = 0; i < 40; ++i) {
      const Tensor a = values[draw(values.size())], b = values[draw(values.size())];
      values.push_back(result(a, b));
      if (draw(3) == 0) values.erase(values.begin() + static_cast<std::ptrdiff_t>(draw(values.size() - 1)));
      if (draw(8) == 0) held.push_back(values.back());
    }
    held.push_back(values.back());
    return held;
  }

 private:
  std::size_t draw(std::size_t below) {
    next_ = next_ * 1664525 + 1013904223;
    return (next_ >> 8) % below;
  }
  Tensor result(const Tensor& a, const Tensor& b) {
    switch (draw(8)) {
      case 0:
        return apply(host_, op::tanh, {.in = {a}});
      case 1:
        return apply(host_, op::add, {.in = {a, b}});
      case 2:
        return apply(host_, op::mul, {.in = {a, b}});
      case 3:
        return apply(host_, op::softmax, {.in = {a}});
      case 4: {  // written in part, twice; the last column stays 0
        const Tensor parts(host_, 3, 4, "parts");
        apply(host_, op::tanh, {.in = {a.column_range(0, 2)}}, parts.column_range(0, 2));
        apply(host_, op::tanh, {.in = {b.column_range(1, 2)}, .write = Write::add}, parts.column_range(2, 3));
        return parts;
      }
      case 5: {
        const Tensor drawn(host_, 3, 4, "drawn");
        draws_.uniform(drawn, -1, 1);
        apply(host_, op::tanh, {.in = {a}, .write = Write::add}, drawn);
        return drawn;
      }
      case 6: {
        const Tensor scaled = apply(host_, op::tanh, {.in = {b}});
        apply(host_, op::sgd, {.in = {scaled}, .attributes = op::at_rate(0.25), .write = Write::add}, state);
        return state;
      }
      default: {
        const Tensor constant(host_, 3, 4, "constant");
        constant.set(Floats(12, 0.125f));
        return apply(host_, op::sub, {.in = {a, constant}});
      }
    }
  }

  const Device host_;
  const std::uint32_t seed_;
  std::uint32_t next_ = 0;
  Generator draws_;

 public:
  Tensor state;
};

template <class Run>
std::vector<std::vector<float>> results_of(const Device& host, const RandomOperators& program, int calls,
                                           const Run& run) {
  const Tensor a(host, 3, 4, "a"), b(host, 3, 4, "b");
  std::vector<std::vector<float>> all;
  for (int i = 0; i < calls; ++i) {
    const auto base = static_cast<float>(i) / 8;
    a.set({base, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    b.set(std::vector<float>(12, base - 1));
    const std::vector<Tensor> results = run({.in = {a, b}});
    if (i % 3 == 1) continue;  // so that replays overlap
    for (const Tensor& result : results) all.push_back(result.get());
  }
  all.push_back(program.state.get());
  return all;
}

}  // namespace windrow::testing
