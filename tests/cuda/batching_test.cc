// Batches on a CUDA device: levels that one kernel computes, where the conformance suite does not reach it; evaluation
// of a network; and values of lazy expressions.
#include <cuda_runtime_api.h>

#include <array>
#include <future>
#include <numeric>
#include <span>
#include <thread>

#include "tests/batching/support.h"
#include "tests/cuda/support.h"
#include "tests/folder.h"
#include "tests/sanitized.h"
#include "windrow/batching/lazy.h"
#include "windrow/engine/trace.h"
#include "windrow/models/internal/graph_network.h"
#include "windrow/models/trainer.h"
#include "windrow/models/workload.h"

namespace windrow::testing {
namespace {

/// So many steps that they are divided into several kernels, which pass values through memory.
class LongCell {
 public:
  explicit LongCell(Parameters& parameters) : weights_(parameters.add("weights", 8, 8, Initial::uniform(-1, 1))) {}

  void operator()(Vertex& v) const {
    const State state = v.state("h", 8);
    auto y = tanh(v.pull("x", 8) + matmul(v.gather(0, state) + v.gather(1, state), weights_));
    for (int i = 0; i < 120; ++i) y = tanh(y);
    v.scatter(state, y);
    v.push("y", y);
  }

 private:
  Parameter weights_;
};

/// Two leaves; a vertex above one or both of them; a vertex above that.
GraphData small_tree(bool both) { return graph_of({{}, {}, both ? Ints{0, 1} : Ints{0}, {2}}, Floats(4 * 8, 0.3f)); }

std::vector<float> outputs(const Device& device, const std::vector<bool>& trees) {
  Parameters parameters(device, 1);
  const LongCell cell(parameters);
  const VertexFunction function("cell", {.arity = 2}, [&](Vertex& v) { cell(v); });
  Runner runner(device, function, parameters, {});
  std::vector<float> all;
  for (const bool both : trees) {
    const Graphs graphs(function, {small_tree(both)});
    const std::vector<float> y = runner.run(graphs.pointers).output("y").get();
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

/// The plan of the second minibatch has the types of the first one, too.
TEST(CudaLevels, AreComputedWhereATypeHasNoRows) {
  fake::reset();
  Engine engine({.policy = Policy::pool, .workers = 2});
  const std::vector<bool> trees = {true, false, true};
  const std::vector<float> expected = outputs(host_device(engine), trees);
  const auto launches_of = [&](cuda::Levels levels) {
    const cuda::OpenDevice opened = cuda::open_device(engine, 0, {.levels = levels});
    const std::uint64_t before = fake::counters().launches;
    outputs(opened.device, trees);
    return fake::counters().launches - before;
  };
  EXPECT_LT(launches_of(cuda::Levels::together), launches_of(cuda::Levels::launches));  // the kernel is used
  const cuda::OpenDevice opened = cuda::open_device(engine, 0, {.levels = cuda::Levels::together});
  const std::vector<float> found = outputs(opened.device, trees);
  expect_near(found, expected, 1e-5);
}

/// The mean loss of the second epoch.
double loss_of_training(const std::string& model, const Device& device, Index hidden, std::size_t samples = 64) {
  Workload workload = make_workload(
      model, device, {.seed = 1, .samples = samples, .sizes = {{"hidden", hidden}, {"embedding", hidden}}});
  Trainer trainer(device, workload, {.minibatch = 32, .optimiser = {.rate = 0.1}});
  trainer.train();
  return trainer.train().loss;
}

/// Wide levels are computed by launches, and narrow ones by the kernel.
TEST(CudaLevels, GiveTheLossOfTheHostHoweverTheyAreDivided) {
  const std::pair<std::string, Index> models[] = {{"tree-lstm", 36}, {"bilstm", 16}};
  for (const auto& [model, hidden] : models) {
    fake::reset();
    Engine engine({.policy = Policy::pool, .workers = 2});
    const double expected = loss_of_training(model, host_device(engine), hidden);
    const cuda::OpenDevice opened = cuda::open_device(engine, 0);
    EXPECT_NEAR(loss_of_training(model, opened.device, hidden), expected, 1e-4 * expected) << model;
  }
}

/// As many groups of teams as fit, some of which may be without samples. Products round as those of cuBLAS do, so the
/// loss is that of launches with the same precision.
TEST(CudaLevels, GiveTheLossOfLaunchesByGroups) {
  struct Case {
    std::string model;
    Index hidden;
    std::size_t shared_bytes;
    unsigned teams;
    std::size_t samples = 48;
  };
  const Case cases[] = {{"tree-lstm", 20, 227 << 10, 9},
                        {"tree-lstm", 40, 40 << 10, 8},
                        {"bilstm", 40, 40 << 10, 8},
                        {"tree-lstm", 21, 20 << 10, 8},
                        {"tree-lstm", 352, 1 << 20, 4, 1}};  // more terms than rows are copied at a time
  for (const Case& one : std::span(cases).first(sanitized ? 2 : std::size(cases))) {
    for (const cuda::Precision precision : {cuda::Precision::float32, cuda::Precision::tf32, cuda::Precision::bf16}) {
      if (precision == cuda::Precision::bf16 && &one != cases) continue;
      SCOPED_TRACE(one.model + " " + std::to_string(one.hidden) + ", precision " +
                   std::to_string(static_cast<int>(precision)));
      const auto loss_by = [&](cuda::Levels levels) {
        fake::reset({.order = fake::Order::random, .multiprocessors = 9, .shared_bytes = one.shared_bytes});
        Engine engine({.policy = Policy::pool, .workers = 2});
        const cuda::OpenDevice opened = cuda::open_device(engine, 0, {.levels = levels, .precision = precision});
        return loss_of_training(one.model, opened.device, one.hidden, one.samples);
      };
      const double expected = loss_by(cuda::Levels::launches);
      EXPECT_NEAR(loss_by(cuda::Levels::groups), expected, 1e-5 * expected);
      EXPECT_EQ(fake::counters().most_teams, one.teams);
    }
  }
}

/// Two engines train on one device at the same time. Otherwise the runtime reports kernels that share the device.
TEST(CudaLevels, OfTwoEnginesDoNotShareTheDevice) {
  fake::reset({.order = fake::Order::random});
  std::vector<std::thread> threads;
  std::array<double, 2> losses{};
  for (double& loss : losses) {
    threads.emplace_back([&loss] {
      Engine engine({.policy = Policy::pool, .workers = 2});
      const cuda::OpenDevice opened = cuda::open_device(engine, 0, {.levels = cuda::Levels::together});
      loss = loss_of_training("tree-lstm", opened.device, 16);
    });
  }
  for (std::thread& one : threads) one.join();
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(fake::reports(), std::vector<std::string>{});
}

/// A process may have fewer multiprocessors than its device says, or a tool takes what teams need.
TEST(CudaLevels, AreComputedByLaunchesWhereTeamsCannotRunTogether) {
  fake::reset();
  Engine engine({.policy = Policy::pool, .workers = 2});
  const auto loss_on = [](const Device& device) { return loss_of_training("tree-lstm", device, 36, 8); };
  const double expected = loss_on(host_device(engine));
  const auto said_of = [&](const fake::Options& options, const cuda::DeviceOptions& of_device) {
    fake::reset(options);
    Engine another({.policy = Policy::pool, .workers = 2});
    const cuda::OpenDevice opened = cuda::open_device(another, 0, of_device);
    ::testing::internal::CaptureStderr();
    EXPECT_NEAR(loss_on(opened.device), expected, 1e-4 * expected);
    EXPECT_NEAR(loss_on(opened.device), expected, 1e-4 * expected);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string refused =
      "windrow: cuda:0: levels of minibatches are computed by launches alone, since it has refused a kernel whose "
      "teams "
      "wait for each other\n";
  for (const cuda::Levels levels : {cuda::Levels::automatic, cuda::Levels::together}) {
    for (const bool graphs : {false, true}) {
      EXPECT_EQ(said_of({}, {.levels = levels, .graphs = graphs}), "");
      EXPECT_EQ(said_of({.cooperative = false}, {.levels = levels, .graphs = graphs}), refused);
    }
  }
}

/// Without eager phases, a level multiplies inputs, too.
TEST(CudaLevels, MultiplyInputsByGroups) {
  fake::reset({.order = fake::Order::random});
  Engine engine({.policy = Policy::pool, .workers = 2});
  const auto outputs_on = [](const Device& device) {
    Parameters parameters(device, 1);
    const Parameter w = parameters.add("w", 8, 16, Initial::uniform(-1, 1));
    const Parameter u = parameters.add("u", 16, 16, Initial::uniform(-1, 1));
    const VertexFunction function("inputs", {.arity = 2}, [&](Vertex& v) {
      const State state = v.state("h", 16);
      const auto y = tanh(matmul(v.pull("x", 8), w) + matmul(v.gather(0, state) + v.gather(1, state), u));
      v.scatter(state, y);
      v.push("y", y);
    });
    Runner runner(device, function, parameters, {.optimisations = {.eager = false}});
    const Graphs graphs(function, {small_tree(true), small_tree(false)});
    return runner.run(graphs.pointers).output("y").get();
  };
  const cuda::OpenDevice opened = cuda::open_device(engine, 0, {.levels = cuda::Levels::groups});
  const std::vector<float> found = outputs_on(opened.device);
  EXPECT_GT(fake::counters().most_teams, 0u);
  expect_near(found, outputs_on(host_device(engine)), 1e-5);
}

TEST(CudaLevels, SayOnceThatNoKernelComputesThem) {
  const auto said_of = [](const std::string& model, const fake::Options& options) {
    fake::reset(options);
    Engine engine({.policy = Policy::pool, .workers = 2});
    const cuda::OpenDevice opened = cuda::open_device(engine, 0, {.levels = cuda::Levels::groups});
    ::testing::internal::CaptureStderr();
    loss_of_training(model, opened.device, 16, 8);
    return ::testing::internal::GetCapturedStderr();
  };
  const auto line = [](const std::string& function) {
    return "windrow: cuda:0: levels of '" + function +
           "' are computed by launches, since one kernel cannot compute them; see docs/cuda.md\n";
  };
  EXPECT_EQ(said_of("tree-lstm", {}), "");
  EXPECT_EQ(said_of("tree-lstm", {.shared_bytes = 4 << 10}), line("tree_lstm"));
  EXPECT_EQ(said_of("dag", {}), line("graph_lstm"));
}

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
