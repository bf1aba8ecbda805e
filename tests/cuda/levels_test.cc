// The kernel that computes all levels of a pass, where the conformance suite does not reach it.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "tests/cuda/support.h"
#include "windrow/batching/runner.h"
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
GraphData small_tree(bool both) {
  GraphData data;
  data.child_begin = {0, 0, 0, both ? 2 : 1, both ? 3 : 2};
  data.children = both ? std::vector<std::int32_t>{0, 1, 2} : std::vector<std::int32_t>{0, 2};
  data.values["x"] = std::vector<float>(4 * 8, 0.3f);
  return data;
}

std::vector<float> outputs(const Device& device, const std::vector<bool>& trees) {
  Parameters parameters(device, 1);
  const LongCell cell(parameters);
  const VertexFunction function("cell", {.arity = 2}, [&](Vertex& v) { cell(v); });
  Runner runner(device, function, parameters, {});
  std::vector<float> all;
  for (const bool both : trees) {
    const InputGraph graph(function, small_tree(both));
    const InputGraph* const graphs[] = {&graph};
    const std::vector<float> y = runner.run(graphs).output("y").get();
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
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5f) << i;
}

/// The mean loss of the second epoch.
double loss_of_training(const std::string& model, const Device& device, Index hidden, std::size_t samples = 64) {
  WorkloadOptions options{.seed = 1, .samples = samples};
  options.sizes["hidden"] = options.sizes["embedding"] = hidden;
  Workload workload = make_workload(model, device, options);
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
  const std::string said = "windrow: cuda:0: levels of minibatches are computed by launches alone, since ";
  const std::string refused = said + "it has refused a kernel whose teams wait for each other\n";
  for (const cuda::Levels levels : {cuda::Levels::automatic, cuda::Levels::together}) {
    for (const bool graphs : {false, true}) {
      EXPECT_EQ(said_of({}, {.levels = levels, .graphs = graphs}), "");
      // The device knows, or only a launch tells.
      EXPECT_EQ(said_of({.teams_each = 0}, {.levels = levels, .graphs = graphs}),
                said + "their teams cannot run at the same time\n");
      EXPECT_EQ(said_of({.cooperative = false}, {.levels = levels, .graphs = graphs}), refused);
    }
  }
}

}  // namespace
}  // namespace windrow::testing
