// Levels that one kernel computes on a CUDA device, where the conformance suite does not reach it.
#include <array>
#include <span>
#include <thread>

#include "tests/batching/support.h"
#include "tests/cuda/support.h"
#include "tests/sanitized.h"
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

}  // namespace
}  // namespace windrow::testing
