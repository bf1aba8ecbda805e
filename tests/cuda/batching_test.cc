// Batches on a CUDA device: evaluation of a network, and values of lazy expressions.
#include <cuda_runtime_api.h>

#include <future>
#include <numeric>
#include <span>

#include "tests/batching/support.h"
#include "tests/cuda/support.h"
#include "tests/folder.h"
#include "windrow/batching/lazy.h"
#include "windrow/engine/trace.h"
#include "windrow/models/internal/graph_network.h"
#include "windrow/models/trainer.h"
#include "windrow/models/workload.h"

namespace windrow::testing {
namespace {

/// Adds up the logits of all vertices.
class SumOfLogits final : public GraphScore {
 public:
  std::function<void()> pending(const Minibatch& minibatch, std::vector<const LabelledGraph*>) override {
    return [this, logits = minibatch.output("logits")] {
      const Floats values = logits.get();
      sum_ = std::accumulate(values.begin(), values.end(), sum_);
    };
  }
  std::vector<Metric> metrics(double) const override { return {{"sum", sum_}}; }

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
  GraphData data = leaves(1, Floats(8, 0.5f));
  data.kinds = {kind};
  data.indices["label"] = {1};
  return data;
}

using CudaEvaluation = OnFakeDevice;

/// The second minibatch stays on the device until the first one is scored.
TEST_F(CudaEvaluation, ScoresAMinibatchThoughTheNextOneIsStillComputed) {
  const Device device = open();
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

/// The score of a minibatch is asked for when it is started, which is when two more are laid out: later work of the
/// device holds nothing up.
TEST_F(CudaEvaluation, OfEveryScoreAsksForOutputsWhenAMinibatchIsStarted) {
  struct Case {
    const char* model;
    bool crf = false;
    std::uint64_t outputs = 1;
  };
  for (const Case& one :
       {Case{"tree-lstm"}, Case{"bilstm"}, Case{"bilstm", true, 2}, Case{"var-lstm", false, 0}, Case{"seq2seq"}}) {
    SCOPED_TRACE(one.model);
    const Device device = open({.memory = std::size_t{1} << 30});
    WorkloadOptions options{.seed = 1, .samples = 32};
    for (const WorkloadSize& size : workload_kind(one.model).sizes) {
      if (size.name == "hidden" || size.name == "embedding") options.sizes[size.name] = 16;
    }
    if (one.crf) options.switches.insert("crf");
    Workload workload = make_workload(one.model, device, options);
    const auto learner = workload.network->learner({});
    const auto outputs = [&] {
      engine->wait_all();
      engine->trace().stop();
      std::uint64_t count = 0;
      for (const TraceSummary::Row& row : engine->trace().summary().ops) count += row.name == "push" ? row.count : 0;
      return count;
    };
    const auto score = learner->score();
    engine->trace().start();
    for (const std::size_t sample : {0u, 1u, 2u}) score->add({&sample, 1});
    EXPECT_EQ(outputs(), one.outputs);
    EXPECT_FALSE(score->metrics().empty());
  }
}

TEST_F(CudaEvaluation, TracesShowTheDevicesMemory) {
  const Device device = open();
  engine->trace().start();
  const Tensor x(device, 1000, 10, "x");
  x.set(Floats(10000, 1.0f));
  engine->wait_all();
  engine->trace().stop();
  const TestFolder folder;
  engine->trace().save(folder.file("trace.json"));
  const std::string text = read_file(folder.file("trace.json"));
  for (const char* track : {"cuda:0: live bytes", "cuda:0: cached bytes"}) {
    EXPECT_NE(text.find(track), std::string::npos) << track;
  }
}

struct Scorer {
  Scorer(const Device& device, Index width)
      : parameters(device, 1),
        words(parameters.add("words", 64, 16, Initial::normal(0, 1))),
        weights(parameters.add("weights", 16, width, Initial::glorot(16, width))) {}

  std::vector<LazyExpr> scores(LazyGraph& graph, int count) const {
    std::vector<LazyExpr> all;
    for (int i = 0; i < count; ++i) all.push_back(matmul(tanh(embedding(words, graph.index(i % 64))), weights));
    return all;
  }

  Parameters parameters;
  const Parameter words, weights;
};

std::vector<Floats> values_of(const std::vector<LazyExpr>& expressions) {
  std::vector<Floats> all;
  for (const LazyExpr& one : expressions) all.push_back(one.value());
  return all;
}

void expect_all_near(const std::vector<Floats>& found, const std::vector<Floats>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    SCOPED_TRACE(i);
    expect_near(found[i], expected[i], 1e-5);
  }
}

/// The copies to the host that take all values of one flush.
std::uint64_t copies_of_values(int count, Index width) {
  fake::reset();
  Engine engine({.policy = Policy::pool, .workers = 2});
  const Device host = host_device(engine), device = cuda::open_device(engine, 0).device;
  Scorer on_host(host, width), on_device(device, width);
  LazyGraph expected_graph(host, on_host.parameters), graph(device, on_device.parameters);
  const std::vector<Floats> expected = values_of(on_host.scores(expected_graph, count));
  const std::vector<LazyExpr> scores = on_device.scores(graph, count);
  graph.flush();
  engine.wait_all();
  const std::uint64_t before = fake::counters().copies;
  expect_all_near(values_of(scores), expected);
  expect_all_near(values_of(scores), expected);
  return fake::counters().copies - before;
}

TEST(CudaLazyValues, OfOneFlushTakeOneCopy) {
  EXPECT_EQ(copies_of_values(64, 33), 1u);
  EXPECT_EQ(copies_of_values(1, 5), 1u);
}

/// So a program that looks at one value of many does not copy all of them.
TEST(CudaLazyValues, OfALargeFlushTakeACopyForEachBlock) {
  constexpr Index width = 512;  // 128 rows a block
  EXPECT_EQ(copies_of_values(1000, width), 8u);
}

TEST(CudaLazyValues, AreThoseOfTheFlushThatComputedThem) {
  fake::reset({.order = fake::Order::random, .seed = 4});
  Engine engine({.policy = Policy::pool, .workers = 2});
  const Device host = host_device(engine), device = cuda::open_device(engine, 0).device;
  Scorer on_host(host, 7), on_device(device, 7);
  LazyGraph expected_graph(host, on_host.parameters), graph(device, on_device.parameters);
  for (int minibatch = 0; minibatch < 3; ++minibatch) {
    std::vector<LazyExpr> losses, expected_losses;
    for (int flush = 0; flush < 3; ++flush) {
      const std::vector<LazyExpr> scores = on_device.scores(graph, 20), expected = on_host.scores(expected_graph, 20);
      expect_all_near(values_of(scores), values_of(expected));
      losses.push_back(softmax_cross_entropy(scores[3], graph.index(flush)));
      expected_losses.push_back(softmax_cross_entropy(expected[3], expected_graph.index(flush)));
    }
    graph.backward(losses);
    expected_graph.backward(expected_losses);
    expect_all_near(values_of(losses), values_of(expected_losses));
    on_device.parameters.sgd(0.5);
    on_host.parameters.sgd(0.5);
    graph.clear();
    expected_graph.clear();
  }
}

}  // namespace
}  // namespace windrow::testing
