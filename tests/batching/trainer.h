// A Tree-LSTM ready to train, and an operator that tests can hook into.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>

#include "tests/batching/cells.h"

namespace windrow::testing {

/// A word for which the Trainer's kernel of `embedding` throws; -1 for none. Ops of one Trainer may read it while
/// another one ends.
inline std::atomic<std::int32_t> refused_word = -1;
inline void embedding_unless_refused(const KernelCall<float>& call) {
  for (Index r = 0; r < call.indices[0].rows; ++r) {
    if (*call.indices[0].row(r) == refused_word)
      throw MisuseError("the word at row " + std::to_string(r) + " is refused");
  }
  host_kernels().find(op::embedding)(call);
}

/// Takes the last word out of all graphs, and refuses it.
inline void refuse_last_word(std::vector<GraphData>& data) {
  refused_word = TreeLstm::vocabulary - 1;
  for (GraphData& graph : data) {
    for (std::int32_t& word : graph.indices["word"]) word = std::min(word, refused_word - 1);
  }
}

/// A Tree-LSTM with its engine, parameters and runner.
struct Trainer {
  explicit Trainer(EngineOptions options = {}, RunnerOptions runner_options = {})
      : engine(options), runner(host, function, parameters, runner_options) {}

  static Device host_of(Engine& engine) {
    Device host = host_device(engine);
    host.kernels.add(op::embedding, embedding_unless_refused);
    return host;
  }

  struct RefuseNoneAtTheEnd {
    ~RefuseNoneAtTheEnd() { refused_word = -1; }
  };

  RefuseNoneAtTheEnd refuse_none_at_the_end;  // goes last: ops read the word until the engine has ended
  Engine engine;
  Device host = host_of(engine);
  Parameters parameters{host, 3};
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

inline Type same(const Operator&, const Signature& signature) { return signature.in[0]; }
inline GradientTerms passed(const Signature&) { return {GradientTerm{nullptr, {Ref::gradient()}}}; }
inline constexpr Operator watched{.name = "watched", .infer = same, .gradients = passed, .locality = Locality::rowwise};
inline constexpr Operator no_gradient{.name = "no_gradient", .infer = same, .locality = Locality::rowwise};

inline void watched_copy(const KernelCall<float>& call) {
  if (during_copy != nullptr) (*during_copy)();
  for (Index r = 0; r < call.out.rows; ++r) std::copy_n(call.in[0].row(r), call.out.width, call.out.row(r));
}

/// A fixture whose vertex function sums the inputs of a vertex and of its descendants, each passed through `watched`.
class Watched : public ::testing::Test {
 protected:
  void SetUp() override { during_copy = &during_; }
  void TearDown() override { during_copy = nullptr; }

  Device host_of(Engine& engine) {
    Device host = host_device(engine);
    host.kernels.add(watched, watched_copy);
    return host;
  }
  VertexFunction function_of(const Parameter& w) {
    return VertexFunction("watched_sum", {.arity = 2}, [&](Vertex& v) {
      const State s = v.state("s", 2);
      const Expr x = apply(watched, {v.pull("x", 2)});
      v.scatter(s, x + v.gather(0, s) + v.gather(1, s));
      v.loss(matmul(x, w));
    });
  }

  std::function<void()> during_ = [] {};
};

}  // namespace windrow::testing
