// The conformance suite on the host and on a simulated device, and what only the simulated device shows.
#include "tests/devices/conformance.h"
#include "tests/devices/simulated.h"
#include "tests/sanitized.h"
#include "windrow/batching/backend.h"
#include "windrow/memory/pool.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;

DeviceUnderTest make_host(Engine& engine, std::size_t) { return {host_device(engine)}; }
/// Its back end is the interpreter, as a device's without one.
DeviceUnderTest make_interpreted(Engine& engine, std::size_t) {
  Device device = host_device(engine);
  device.backend = interpreter();
  return {device};
}

DeviceUnderTest make_simulated(Engine& engine, const SimulatedOptions& options) {
  const auto made = std::make_shared<SimulatedDevice>(simulated_device(engine, options));
  const LaneId second =
      engine.add_lane(std::make_shared<SimLane>(options.name + " copies", options.number, options.seed));
  Device device = made->device;
  if (options.pool) device.copy_out = second;
  return {device, second, made};
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
    if (setup.workers == 8) continue;
    all.push_back({"simulated", setup.policy, setup.workers, make_with_pool});
  }
  all.push_back({"slow", Policy::pool, 2, make_slow});
  return all;
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
INSTANTIATE_TEST_SUITE_P(All, OnSmallDevice, ::testing::ValuesIn(cases()), case_name);
INSTANTIATE_TEST_SUITE_P(All, OnCheckedDevice, ::testing::ValuesIn(cases()), case_name);

TEST(SimulatedDeviceDeathTest, MemoryIsOutOfTheHostsReach) {
  Engine engine({.policy = Policy::serial});
  const SimulatedDevice made = simulated_device(engine);
  const Tensor x(made.device, 1, 1);
  x.set({1});
  const volatile float* address = nullptr;
  engine.push([&, view = x.view()](OpContext& op) { address = view.read(op.lane()).data; }, {read(x.var())},
              {.lane = made.device.lane});
  EXPECT_DEATH(static_cast<void>(*address), "");
}

TEST(SimulatedDevice, IssuesAChainWithoutWaitingForIt) {
  Engine engine({.policy = Policy::pool, .workers = 1});
  const SimulatedDevice made = simulated_device(engine);
  const Tensor one(made.device, 1, 2);
  one.set({1, 1});
  engine.wait_all();
  made.lane->hold();
  Tensor x = one;
  for (int i = 0; i < 100; ++i) x = apply(made.device, op::add, {.in = {x, one}});
  // The temporaries are freed and used again while none of their work has run.
  const auto& pool = dynamic_cast<const Pool&>(*made.device.memory);
  const auto until = std::chrono::steady_clock::now() + patience;
  while (pool.stats().reused < 90 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_GE(pool.stats().reused, 90u);
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
  const std::string text = error_of<OpError>([&] { x.get(); });
  EXPECT_NE(text.find("lost"), std::string::npos) << text;
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
      GraphData data{.child_begin = {0, 0}};
      data.values["x"] = {x, x};
      const InputGraph graph(function, data);
      const InputGraph* const graphs[] = {&graph};
      for (int i = 0; i < 3; ++i) {
        const Minibatch minibatch = runner.differentiate(graphs);
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
    const auto until = std::chrono::steady_clock::now() + patience;
    while (made.memory->held() > 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    EXPECT_EQ(made.memory->held(), 0u);
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
      const Tensor x(made.device, 1, 1000);
      x.set(Floats(1000, 1));
      engine.push([seen, view = x.view()](OpContext& op) { view.download(op.lane(), seen->data()); },
                  {read(x.var()), overwrite(done)}, {.lane = copies});
    }
    const Tensor y(made.device, 1, 1000);
    y.set(Floats(1000, 2));
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
  const Tensor x(made.device, 1, 100);
  x.set(Floats(100, 7));
  EXPECT_EQ(apply(made.device, op::relu, {.in = {x}}).get(), Floats(100, 7));
  EXPECT_EQ(asked_for, 400u);
  // Another lane would use the workspace out of order.
  const Tensor y(made.device, 1, 100);
  Prepared prepared = prepare(made.device, op::relu, {.in = {x}}, y);
  const LaneId second = engine.add_lane(std::make_shared<SimLane>("second"));
  engine.push([compute = std::move(prepared.compute)](OpContext& op) { compute(op.lane()); }, prepared.accesses,
              {.lane = second});
  const std::string text = error_of<OpError>([&] { engine.wait(y.var()); });
  EXPECT_NE(text.find("relu: computed by an op of another lane; expected the device's"), std::string::npos) << text;
}

}  // namespace
}  // namespace windrow::testing
