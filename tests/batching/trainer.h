// A Tree-LSTM ready to train, and an operator that tests can hook into.
#pragma once

#include "tests/batching/cells.h"

namespace windrow::testing {

/// A Tree-LSTM with its engine, parameters and runner.
struct Trainer : OnHost {
  explicit Trainer(const EngineOptions& options = {}, const RunnerOptions& runner_options = {})
      : OnHost(options, 3), runner(host, function, parameters, runner_options) {}

  TreeLstm cell{parameters};
  VertexFunction function{"tree_lstm", {.arity = 2}, [this](Vertex& v) { cell(v); }};
  Runner runner;
};

inline std::vector<GraphData> many_trees(unsigned seed, std::size_t count) {
  std::mt19937 random(seed);
  std::vector<GraphData> data;
  for (std::size_t i = 0; i < count; ++i) {
    data.push_back(random_graph(1 + static_cast<std::int32_t>(random() % 30), 2, Form::trees, random));
  }
  return data;
}

/// A function of the current test, which the kernel of the operator `watched` calls before it copies its operand.
inline std::function<void()>* during_copy = nullptr;

/// The kernel throws where a row begins with it.
constexpr float refused = -77;

inline Type same(const Operator&, const Signature& signature) { return signature.in[0]; }
inline GradientTerms passed(const Signature&) { return {GradientTerm{nullptr, {Ref::gradient()}}}; }
inline constexpr Operator watched{.name = "watched", .infer = same, .gradients = passed, .locality = Locality::rowwise};
inline constexpr Operator no_gradient{.name = "no_gradient", .infer = same, .locality = Locality::rowwise};

inline void watched_copy(const KernelCall<float>& call) {
  if (during_copy != nullptr) (*during_copy)();
  for (Index r = 0; r < call.out.rows; ++r) {
    if (call.out.width > 0 && *call.in[0].row(r) == refused)
      throw MisuseError("row " + std::to_string(r) + " is refused");
    std::copy_n(call.in[0].row(r), call.out.width, call.out.row(r));
  }
}

/// A vertex function that sums the inputs of a vertex and of its descendants, each passed through `watched`; and trees.
struct Watched {
  explicit Watched(const EngineOptions& on = {}, const RunnerOptions& options = {})
      : engine(on), runner(host, function, parameters, options) {}

  static Device host_of(Engine& engine) {
    Device host = host_device(engine);
    host.kernels.add(watched, watched_copy);
    return host;
  }

  struct During {
    During() { during_copy = &call; }
    ~During() { during_copy = nullptr; }
    std::function<void()> call = [] {};
  };
  During during;  // goes last, as ops call it until the engine has ended
  Engine engine;
  Device host = host_of(engine);
  Parameters parameters{host, 1};
  Parameter w = parameters.add("w", 2, 1, Initial::constant(1));
  VertexFunction function{"watched_sum", {.arity = 2}, [this](Vertex& v) {
                            const State s = v.state("s", 2);
                            const Expr x = apply(watched, {v.pull("x", 2)});
                            v.scatter(s, x + v.gather(0, s) + v.gather(1, s));
                            v.loss(matmul(x, w));
                          }};
  Runner runner;
  Graphs graphs{function, many_trees(2, 12)};
};

}  // namespace windrow::testing
