// Memory of the host that is refused, at every allocation of programs on a CUDA device, on whatever thread.
//
// Each program runs with its first allocation failing, then with its second, and so on; those of the fake runtime do
// not count. Whatever fails: a call throws, or its value is right; nothing hangs or aborts, and afterwards the same
// engine and device work.
#include <optional>

#include "tests/batching/support.h"
#include "tests/cuda/support.h"
#include "tests/engine/fault_trial.h"

namespace windrow::testing {
namespace {

thread_local std::optional<faults::Sheltered> shelter_of_call;
thread_local int calls_inside = 0;
const bool fake_is_sheltered = [] {
  fake::around_own_allocations(
      [] {
        if (calls_inside++ == 0) shelter_of_call.emplace();
      },
      [] {
        if (--calls_inside == 0) shelter_of_call.reset();
      });
  return true;
}();

/// Something that computes a value and throws what its ops throw.
using Program = std::function<Floats(Engine& engine, const cuda::OpenDevice& opened)>;

/// A wait reports one of the ops that failed.
void hear_of_failures(Engine& engine) {
  for (int i = 0; i < 20; ++i) {
    if (attempt([&] { engine.wait_all(); })) return;
  }
  ADD_FAILURE() << "failures without end";
}

/// Fails allocations one after the other until the program needs fewer, in a device that has run it before.
void try_each(const Program& program, const fake::Options& options = {}) {
  const char* const strides = std::getenv("WINDROW_FAULT_STRIDES");
  const int most = strides == nullptr ? WINDROW_FAULT_STRIDES : std::atoi(strides);
  std::uint64_t step = 1;
  int tried = 0;
  bool struck = true;
  for (std::uint64_t at = 1; struck; at += step) {
    SCOPED_TRACE(at);
    fake::reset(options);
    Engine engine({.policy = Policy::pool, .workers = 2});
    const cuda::OpenDevice opened = cuda::open_device(engine, 0);
    const Floats expected = program(engine, opened);
    engine.wait_all();
    {
      const faults::Armed armed({.at = at});
      attempt([&] { EXPECT_EQ(program(engine, opened), expected); });
      attempt([&] { engine.wait_all(); });
    }
    struck = faults::struck();
    hear_of_failures(engine);
    EXPECT_EQ(program(engine, opened), expected);
    engine.wait_all();
    if (::testing::Test::HasFailure()) return;
    if (++tried % (2 * most) == 0) step *= 2;
  }
  EXPECT_GT(tried, 5);  // otherwise allocations were not counted
}

TEST(CudaFaults, WhileAChainOfOpsRuns) {
  try_each([](Engine&, const cuda::OpenDevice& opened) {
    Tensor x = filled(opened.device, 1, 64, 1);
    for (int i = 0; i < 3; ++i) x = apply(opened.device, op::neg, {.in = {x}});
    return x.get();
  });
}

/// Points of one lane are awaited by others, and by host ops that keep what they have captured.
TEST(CudaFaults, WhileLanesAndTheHostWaitForEachOther) {
  try_each(
      [](Engine& engine, const cuda::OpenDevice& opened) {
        const Device& device = opened.device;
        Tensor x = filled(device, 1, 64, 3);
        const Var seen = engine.new_var("seen");
        const std::shared_ptr<void> end_of_seen(nullptr, [&](void*) { attempt([&] { engine.retire(seen); }); });
        for (const LaneId lane : {opened.copy_in, opened.copy_out, opened.collectives}) {
          const Tensor y(device, 1, 64);
          apply(device, op::neg, {.in = {x}}, y);
          engine.push(
              [from = x, to = y, kernel = device.kernels.find(op::square)](OpContext& op) {
                const Matrix<const float> in[] = {from.view().read(op.lane())};
                kernel({.in = in, .out = to.view().update(op.lane()), .op = &op::square, .lane = op.lane()});
              },
              {read(x.var()), mutate(y.var())}, {.lane = lane});
          engine.push([held = std::make_shared<int>(1)] {}, {read(y.var()), mutate(seen)});
          x = apply(device, op::sigmoid, {.in = {y}});
        }
        engine.wait(seen);
        return x.get();
      },
      {.order = fake::Order::random, .seed = 3});
}

TEST(CudaFaults, WhileAMinibatchIsDifferentiated) {
  try_each([](Engine&, const cuda::OpenDevice& opened) {
    Parameters parameters(opened.device, 1);
    const Parameter weights = parameters.add("weights", 8, 8, Initial::uniform(-1, 1));
    const VertexFunction function("f", {.arity = 1}, [&](Vertex& v) {
      const State s = v.state("s", 8);
      const auto y = tanh(v.pull("x", 8) + matmul(v.gather(0, s), weights));
      v.scatter(s, y);
      v.push("y", y);
    });
    Runner runner(opened.device, function, parameters, {});
    const Graphs graphs(function, {chain_of(3, Floats(3 * 8, 0.5f))});
    return runner.run(graphs.pointers).output("y").get();
  });
}

/// A failure is not lost where there is no memory to describe it. A lost device stays lost while anything of it is
/// kept, as bytes are whose free could not be pushed; then another one takes its place.
TEST(CudaFaults, WhileTheDeviceIsLost) {
  constexpr int most = 64;
  int number = 0;
  bool struck = true;
  for (std::uint64_t at = 1; struck; ++at) {
    SCOPED_TRACE(at);
    fake::reset({.devices = most, .memory = std::size_t{1} << 22});
    Engine engine({.policy = Policy::pool, .workers = 2});
    std::optional<Device> opened;
    const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (!attempt([&] { opened = cuda::open_device(engine, number).device; })) {
      number += std::chrono::steady_clock::now() > soon;
      ASSERT_LT(number, most);
    }
    const Tensor x = filled(*opened, 1, 64, 1);
    engine.wait_all();
    const auto compute = [&] { apply(*opened, op::neg, {.in = {x}}).get(); };
    bool threw = false;
    fake::fail_next_work(number);
    {
      const faults::Armed armed({.at = at});
      threw = !attempt(compute);
      attempt([&] { engine.wait_all(); });
    }
    struck = faults::struck();
    EXPECT_TRUE(threw);
    EXPECT_FALSE(attempt(compute));  // perhaps nothing was issued before
    EXPECT_FALSE(attempt([&] { cuda::open_device(engine, number); }));
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace windrow::testing
