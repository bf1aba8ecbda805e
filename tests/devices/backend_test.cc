// Back ends of devices: one that is written with the public headers alone, and which back end a device gets.
#include "windrow/batching/backend.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/batching/cells.h"
#include "tests/batching/check_minibatch.h"
#include "tests/batching/oracle.h"
#include "tests/devices/simulated.h"
#include "tests/engine/support.h"
#include "windrow/batching/backend/execution.h"

namespace windrow::testing {
namespace {

struct Counts {
  std::atomic<int> plans = 0, minibatches = 0, segments = 0;
};

class CountingExecution final : public Execution {
 public:
  CountingExecution(Counts& counts, const Device& device, std::shared_ptr<const Plan> plan, Layout layout,
                    std::vector<Tensor> tensors, Options options)
      : Execution(device, std::move(plan), std::move(layout), std::move(tensors), std::move(options)), counts_(counts) {
    ++counts_.minibatches;
  }

 protected:
  void run(const Segment& segment, const At& at) override {
    EXPECT_NE(at.lane, nullptr);
    ++counts_.segments;
    Execution::run(segment, at);
  }

 private:
  Counts& counts_;
};

/// An interpreter that counts what it is asked for.
class CountingBackend final : public Backend {
 public:
  explicit CountingBackend(Counts& counts) : counts_(counts) {}
  PlanOptions options_for(PlanOptions wanted) const override { return Execution::options_for(wanted); }
  std::shared_ptr<const LoweredPlan> lower(const Device& device, std::shared_ptr<const Plan> plan) const override {
    ++counts_.plans;
    auto with = std::make_shared<const Plan>(with_kernels(*plan, device.kernels));
    return std::make_shared<Lowered>(counts_, device, std::move(with));
  }

 private:
  struct Lowered final : LoweredPlan {
    Lowered(Counts& all, const Device& on, std::shared_ptr<const Plan> plan)
        : LoweredPlan(std::move(plan)), counts(all), device(on) {}
    std::shared_ptr<Execution> start(Layout layout, std::vector<Tensor> tensors, std::vector<char> needed,
                                     Execution::Options options) const override {
      EXPECT_EQ(needed, std::vector<char>(plan_->tensors.size(), 1));
      return std::make_shared<CountingExecution>(counts, device, plan_, std::move(layout), std::move(tensors),
                                                 std::move(options));
    }
    Counts& counts;
    Device device;
  };

  Counts& counts_;
};

TEST(OwnBackend, ComputesTheMinibatchesOfItsDevice) {
  Counts counts;
  Engine engine({.policy = Policy::pool, .workers = 2});
  SimulatedDevice made = simulated_device(engine, {.seed = 5});
  made.device.backend = std::make_shared<CountingBackend>(counts);
  Parameters parameters(made.device, 1);
  const TreeLstm cell(parameters);
  const VertexFunction function("tree_lstm", {.arity = 2}, [&](Vertex& v) { cell(v); });
  Oracle oracle(parameters, [&](OracleVertex& v) { cell(v); });
  std::mt19937 random(1);
  std::vector<GraphData> data;
  for (const std::int32_t vertices : {1, 9, 14}) data.push_back(random_graph(vertices, 2, Form::trees, random));
  Runner runner(made.device, function, parameters);
  check_minibatch(runner, parameters, oracle, function, data);
  EXPECT_EQ(counts.plans, runner.stats().plans);
  EXPECT_EQ(counts.minibatches, runner.stats().minibatches);
  EXPECT_GT(counts.segments, 3 * counts.minibatches);
}

TEST(Backend, OfADeviceIsItsOwnOrChosenByItsMemory) {
  Engine engine;
  Device host = host_device(engine);
  EXPECT_EQ(backend_of(host), host_backend());
  host.backend = interpreter();
  EXPECT_EQ(backend_of(host), interpreter());
  const SimulatedDevice made = simulated_device(engine);
  EXPECT_EQ(backend_of(made.device), interpreter());
}

TEST(Backend, OfTheHostRefusesADeviceWithMemoryOfItsOwn) {
  Engine engine;
  SimulatedDevice made = simulated_device(engine);
  made.device.backend = host_backend();
  Parameters parameters(made.device, 1);
  const VertexFunction function("f", {.arity = 0}, [](Vertex& v) { v.push("x", v.pull("x", 1)); });
  GraphData data{.child_begin = {0, 0}};
  data.values["x"] = {1};
  const Graphs graphs(function, {data});
  Runner runner(made.device, function, parameters);
  const std::string said = error_of<MisuseError>([&] { runner.run(graphs.pointers); });
  EXPECT_NE(said.find("device 'sim:0' has memory of its own; expected another back end"), std::string::npos) << said;
}

}  // namespace
}  // namespace windrow::testing
