// The conformance suite on the host and on a simulated device, and what only the simulated device shows. Back ends of
// devices: one that is written with the public headers alone, and which back end a device gets.

#include "tests/batching/check_minibatch.h"
#include "tests/devices/conformance.h"
#include "tests/devices/simulated.h"
#include "tests/filled.h"
#include "windrow/batching/backend.h"
#include "windrow/batching/internal/execution.h"
#include "windrow/memory/pool.h"

namespace windrow::testing {
namespace {

DeviceUnderTest make_host(Engine& engine, std::size_t) {
  return {.device = host_device(engine), .kernels = DeviceUnderTest::Kernels::of_host};
}
/// Its back end is the interpreter, as a device's without one.
DeviceUnderTest make_interpreted(Engine& engine, std::size_t) {
  Device device = host_device(engine);
  device.backend = interpreter();
  return {.device = device, .kernels = DeviceUnderTest::Kernels::of_host};
}

DeviceUnderTest make_simulated(Engine& engine, const SimulatedOptions& options) {
  const auto made = std::make_shared<SimulatedDevice>(simulated_device(engine, options));
  const LaneId second =
      engine.add_lane(std::make_shared<SimLane>(options.name + " copies", options.number, options.seed));
  Device device = made->device;
  if (options.pool) device.copy_out = second;
  return {device, second, DeviceUnderTest::Kernels::of_host, made};
}
DeviceUnderTest make_with_pool(Engine& engine, std::size_t capacity) {
  return make_simulated(engine, {.capacity = capacity});
}
/// Memory is overwritten as soon as it is freed, and the lane is slow at times.
DeviceUnderTest make_slow(Engine& engine, std::size_t capacity) {
  return make_simulated(engine, {.pool = false, .seed = 3, .capacity = capacity});
}

DeviceUnderTest make_slow_with_pool(Engine& engine, std::size_t capacity) {
  return make_simulated(engine, {.seed = 4, .capacity = capacity});
}

std::vector<DeviceCase> cases() {
  std::vector<DeviceCase> all = {{"host", Policy::pool, 2, make_host}};
  for (const Setup& setup : every_setup) {
    if (takes_part(setup)) all.push_back({"simulated", setup.policy, setup.workers, make_with_pool});
  }
  all.push_back({"slow", Policy::pool, 2, make_slow});
  return all;
}

std::vector<DeviceCase> cases_of_kernels() {
  return {{"host", Policy::pool, 2, make_host}, {"slow", Policy::pool, 2, make_slow}};
}

INSTANTIATE_TEST_SUITE_P(All, OnDevice, ::testing::ValuesIn(cases()), case_name);
/// The host with either back end, and the simulated devices.
std::vector<DeviceCase> few_cases() {
  std::vector<DeviceCase> all = {{"slow_with_pool", Policy::pool, 2, make_slow_with_pool}};
  all.push_back({"interpreted_host", Policy::pool, 2, make_interpreted});
  if (sanitized) return all;
  all.push_back({"host", Policy::pool, 2, make_host});
  all.push_back({"simulated", Policy::pool, 2, make_with_pool});
  all.push_back({"simulated", Policy::serial, 1, make_with_pool});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, OnDeviceInFull, ::testing::ValuesIn(few_cases()), case_name);
INSTANTIATE_TEST_SUITE_P(All, KernelsOnDevice, ::testing::ValuesIn(cases_of_kernels()), case_name);
INSTANTIATE_TEST_SUITE_P(All, OnSmallDevice, ::testing::ValuesIn(cases()), case_name);
INSTANTIATE_TEST_SUITE_P(All, OnCheckedDevice, ::testing::ValuesIn(cases()), case_name);

TEST(SimulatedDeviceDeathTest, MemoryIsOutOfTheHostsReach) {
  Engine engine({.policy = Policy::serial});
  const SimulatedDevice made = simulated_device(engine);
  const Tensor x = filled(made.device, 1, 1, 1);
  const volatile float* address = nullptr;
  engine.push([&, view = x.view()](OpContext& op) { address = view.read(op.lane()).data; }, {read(x.var())},
              {.lane = made.device.lane});
  EXPECT_DEATH(static_cast<void>(*address), "");
}

TEST(SimulatedDevice, IssuesAChainWithoutWaitingForIt) {
  Engine engine({.policy = Policy::pool, .workers = 1});
  const SimulatedDevice made = simulated_device(engine);
  const Tensor one = filled(made.device, 1, 2, 1);
  engine.wait_all();
  made.lane->hold();
  Tensor x = one;
  for (int i = 0; i < 100; ++i) x = apply(made.device, op::add, {.in = {x, one}});
  // The temporaries are freed and used again while none of their work has run.
  const auto& pool = dynamic_cast<const Pool&>(*made.device.memory);
  EXPECT_TRUE(comes_true([&] { return pool.stats().reused >= 90; }));
  EXPECT_LE(pool.stats().peak_in_use, 6 * aligned_size(Pool::rounded(8), pool.alignment()));
  made.lane->let_go();
  EXPECT_EQ(x.get(), (Floats{101, 101}));
  engine.wait_all();
}

TEST(SimulatedDevice, ThatFailsPoisonsItsTensorsAlone) {
  Engine engine({.policy = Policy::pool, .workers = 2});
  const SimulatedDevice broken = simulated_device(engine),
                        other = simulated_device(engine, {.name = "sim:1", .number = 2});
  const Tensor x(broken.device, 1, 2, "x"), y(other.device, 1, 2, "y");
  x.set({1, 2});
  y.set({3, 4});
  engine.wait_all();
  engine.push([lane = broken.lane.get()](OpContext&) { lane->launch([] { throw std::runtime_error("lost"); }); },
              {mutate(x.var())}, {.name = "kernel", .lane = broken.device.lane});
  expect_error<OpError>([&] { x.get(); }, "lost");
  EXPECT_EQ(apply(other.device, op::neg, {.in = {y}}).get(), (Floats{-3, -4}));
  error_of<OpError>([&] { engine.wait_all(); });
}

TEST(SimulatedDevice, TakesMemoryBackAfterMinibatches) {
  for (const float x : {1.0f, -1.0f}) {  // the loss of the second one is not finite
    Engine engine({.policy = Policy::pool, .workers = 2});
    const SimulatedDevice made = simulated_device(engine, {.pool = false, .seed = 5});
    {
      Parameters parameters(made.device, 1);
      const Parameter w = parameters.add("w", 2, 2, Initial::constant(1));
      const VertexFunction function("roots", {.arity = 0}, [&](Vertex& v) {
        const Expr y = matmul(v.pull("x", 2), w);
        v.push("y", y);
        v.loss(row_sum(sqrt(y)));
      });
      Runner runner(made.device, function, parameters);
      const Graphs graphs(function, {leaves(1, {x, x})});
      for (int i = 0; i < 3; ++i) {
        const Minibatch minibatch = runner.differentiate(graphs.pointers);
        parameters.sgd(0.1);
        try {
          minibatch.output("y").get();
        } catch (const OpError&) {
          EXPECT_LT(x, 0);
          break;
        }
      }
    }
    try {
      engine.wait_all();
    } catch (const OpError&) {
      EXPECT_LT(x, 0);
    }
    engine.wait_all();
    EXPECT_TRUE(comes_true([&] { return made.memory->held() == 0; }));
  }
}

/// Another lane may read a buffer; its memory is not used again before that lane has done so.
TEST(SimulatedDevice, FreesMemoryBehindTheWorkOfOtherLanes) {
  for (const bool pool : {false, true}) {
    Engine engine({.policy = Policy::pool, .workers = 2});
    const SimulatedDevice made = simulated_device(engine, {.pool = pool});
    const auto second = std::make_shared<SimLane>("second");
    const LaneId copies = engine.add_lane(second);
    const auto seen = std::make_shared<Floats>(1000);
    const Var done = engine.new_var("done");
    second->hold();
    {
      const Tensor x = filled(made.device, 1, 1000, 1);
      engine.push([seen, view = x.view()](OpContext& op) { view.download(op.lane(), seen->data()); },
                  {read(x.var()), overwrite(done)}, {.lane = copies});
    }
    const Tensor y = filled(made.device, 1, 1000, 2);
    EXPECT_FALSE(engine.wait_for({read(done)}, std::chrono::milliseconds(20)));
    second->let_go();
    engine.wait(done);
    EXPECT_EQ(*seen, Floats(1000, 1));
    engine.retire(done);
  }
}

TEST(SimulatedDevice, KeepsBuffersOfTheHostOffItsLane) {
  Engine engine({.policy = Policy::pool, .workers = 1});
  const SimulatedDevice made = simulated_device(engine);
  const std::string text =
      error_of<MisuseError>([&] { Buffer(engine, host_allocator(), 16, "pinned", made.device.lane); });
  EXPECT_EQ(text,
            "buffer 'pinned' in the host's memory: on lane 'sim:0'; expected a host lane, which every device may use");
}

TEST(SimulatedDevice, RefusesTensorsOfAnotherOne) {
  Engine engine({.policy = Policy::pool, .workers = 1});
  const SimulatedDevice one = simulated_device(engine),
                        other = simulated_device(engine, {.name = "sim:1", .number = 2});
  const Tensor x(one.device, 1, 2), y(other.device, 1, 2);
  error_of<MisuseError>([&] { apply(one.device, op::add, {.in = {x, y}}); });
  Parameters parameters(other.device, 1);
  const VertexFunction function("f", {.arity = 0}, [](Vertex& v) { v.push("x", v.pull("x", 1)); });
  error_of<MisuseError>([&] { Runner(one.device, function, parameters); });
}

std::size_t asked_for = 0;
/// Copies x to the workspace, and from there to the result.
void copy_twice(const KernelCall<float>& call) {
  const SimMemory& memory = SimMemory::of(call.out.data);
  float* const between = memory.mapped(reinterpret_cast<float*>(call.workspace));
  const float* const from = memory.mapped(call.in[0].data);
  float* const to = memory.mapped(call.out.data);
  auto& lane = dynamic_cast<SimLane&>(*call.lane);
  const Index width = call.out.width;
  lane.launch([=] { std::copy_n(from, width, between); });
  lane.launch([=] { std::copy_n(between, width, to); });
}
std::size_t workspace_of(const KernelCall<float>& call) {
  EXPECT_EQ(call.in[0].data, nullptr);
  EXPECT_EQ(call.out.data, nullptr);
  return asked_for = static_cast<std::size_t>(call.in[0].width) * sizeof(float);
}

TEST(SimulatedDevice, GivesKernelsTheWorkspaceThatTheyAskFor) {
  Engine engine({.policy = Policy::pool, .workers = 1});
  SimulatedDevice made = simulated_device(engine, {.pool = false});
  made.device.kernels.add(op::relu, Kernel<float>(copy_twice, workspace_of));
  const Tensor x = filled(made.device, 1, 100, 7);
  EXPECT_EQ(apply(made.device, op::relu, {.in = {x}}).get(), Floats(100, 7));
  EXPECT_EQ(asked_for, 400u);
  // Another lane would use the workspace out of order.
  const Tensor y(made.device, 1, 100);
  Prepared prepared = prepare(made.device, op::relu, {.in = {x}}, y);
  const LaneId second = engine.add_lane(std::make_shared<SimLane>("second"));
  engine.push([compute = std::move(prepared.compute)](OpContext& op) { compute(op.lane()); }, prepared.accesses,
              {.lane = second});
  expect_error<OpError>([&] { engine.wait(y.var()); },
                        "relu: computed by an op of another lane; expected the device's");
}

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
  Runner runner(made.device, function, parameters);
  check_minibatch(runner, parameters, oracle, function, random_graphs({1, 9, 14}, 2, Form::trees, random));
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
  const Graphs graphs(function, {leaves(1, {1})});
  Runner runner(made.device, function, parameters);
  expect_error<MisuseError>([&] { runner.run(graphs.pointers); },
                            "device 'sim:0' has memory of its own; expected another back end");
}

}  // namespace
}  // namespace windrow::testing
