// Evaluation of a network on a CUDA device.
#include <cuda_runtime_api.h>

#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/cuda/support.h"
#include "windrow/engine/trace.h"
#include "windrow/models/internal/graph_network.h"
#include "windrow/models/workload.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;

/// Adds up the logits of all vertices.
class SumOfLogits final : public GraphScore {
 public:
  std::function<void()> pending(const Minibatch& minibatch, std::vector<const LabelledGraph*>) override {
    return [this, logits = minibatch.output("logits")] {
      const Floats values = logits.get();
      sum_ = std::accumulate(values.begin(), values.end(), sum_);
    };
  }
  std::vector<Metric> metrics() const override { return {{"sum", sum_}}; }

 private:
  double sum_ = 0;
};

/// Vertices of two kinds; those of the second one need a kernel, log_sum_exp, that the others do not.
VertexFunction two_kinds(Parameter weights) {
  const auto loss = [weights](Vertex& v, const Expr& x) {
    const Expr logits = matmul(x, weights);
    v.push("logits", logits);
    return softmax_cross_entropy(logits, v.pull_index("label"));
  };
  const VertexFunction plain("plain", {.arity = 0}, [&](Vertex& v) { v.loss(loss(v, v.pull("x", 8))); });
  const VertexFunction held("held", {.arity = 0}, [&](Vertex& v) {
    const Expr x = v.pull("x", 8);
    v.loss(loss(v, x) + log_sum_exp(x));
  });
  return VertexFunction("two kinds", {plain, held});
}

GraphData vertex_of_kind(std::int32_t kind) {
  GraphData data;
  data.child_begin = {0, 0};
  data.kinds = {kind};
  data.values["x"] = Floats(8, 0.5f);
  data.indices["label"] = {1};
  return data;
}

/// The second minibatch stays on the device until the first one is scored.
TEST(CudaEvaluation, ScoresAMinibatchThoughTheNextOneIsStillComputed) {
  fake::reset();
  Engine engine({.policy = Policy::pool, .workers = 2});
  const Device device = cuda::open_device(engine, 0).device;
  Parameters parameters(device, 1);
  const Parameter weights = parameters.add("weights", 8, 3, Initial::uniform(-1, 1));
  GraphNetwork network(device, parameters, two_kinds(weights), [] { return std::make_unique<SumOfLogits>(); });
  for (const std::int32_t kind : {0, 1}) {
    network.validation.push_back({InputGraph(network.function(), vertex_of_kind(kind))});
  }
  const auto learner = network.learner({});
  const auto add = [](Score& score, std::size_t sample) { score.add({&sample, 1}); };
  double expected = 0;
  for (int round = 0; round < 2; ++round) {  // compiles kernels
    const auto both = learner->score();
    add(*both, 0);
    add(*both, 1);
    expected = both->metrics().front().value;
  }
  const auto score = learner->score();
  fake::hold_at("log_sum_exp");
  auto adding = std::async(std::launch::async, [&] {
    add(*score, 0);
    add(*score, 1);
  });
  EXPECT_EQ(adding.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  fake::hold_at("");
  adding.get();
  EXPECT_EQ(score->metrics().front().value, expected);
}

/// The score of one sample is asked for when its minibatch is started: later work of the device holds nothing up.
TEST(CudaEvaluation, OfEveryScoreAsksForOutputsWhenAMinibatchIsStarted) {
  struct Case {
    const char* model;
    bool crf = false;
    std::uint64_t outputs = 1;
  };
  for (const Case& one :
       {Case{"tree-lstm"}, Case{"bilstm"}, Case{"bilstm", true, 2}, Case{"var-lstm", false, 0}, Case{"seq2seq"}}) {
    SCOPED_TRACE(one.model);
    fake::reset({.memory = std::size_t{1} << 30});
    Engine engine({.policy = Policy::pool, .workers = 2});
    const Device device = cuda::open_device(engine, 0).device;
    WorkloadOptions options{.seed = 1, .samples = 32};
    for (const WorkloadSize& size : workload_kind(one.model).sizes) {
      if (size.name == "hidden" || size.name == "embedding") options.sizes[size.name] = 16;
    }
    if (one.crf) options.switches.insert("crf");
    Workload workload = make_workload(one.model, device, options);
    const auto learner = workload.network->learner({});
    const auto outputs = [&] {
      engine.wait_all();
      engine.trace().stop();
      std::uint64_t count = 0;
      for (const TraceSummary::Row& row : engine.trace().summary().ops) count += row.name == "push" ? row.count : 0;
      return count;
    };
    const auto score = learner->score();
    const std::size_t sample = 0;
    engine.trace().start();
    score->add({&sample, 1});
    EXPECT_EQ(outputs(), one.outputs);
    EXPECT_FALSE(score->metrics().empty());
  }
}

}  // namespace
}  // namespace windrow::testing
