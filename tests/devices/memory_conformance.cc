// Memory of a device: when it is allocated and freed, copies to and from it, and who may access it.
#include "tests/devices/conformance.h"

namespace windrow::testing {
namespace {

Floats numbers(Index count) {
  Floats values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

TEST_P(OnDevice, GivesBackWhatWasSet) {
  for (const Index width : {1, 3, 4, 64, 100}) {
    for (const Index rows : {0, 1, 2, 7}) {
      const Tensor x = tensor(rows, width, numbers(rows * width));
      EXPECT_EQ(x.get(), numbers(rows * width)) << rows << " x " << width;
      const IntTensor i = ints(rows, width, std::vector<std::int32_t>(static_cast<std::size_t>(rows * width), -3));
      EXPECT_EQ(i.get(), std::vector<std::int32_t>(static_cast<std::size_t>(rows * width), -3));
    }
  }
  EXPECT_EQ(Tensor(device, 3, 0).get(), Floats{});
}

TEST_P(OnDevice, CopiesRectangles) {
  const Tensor x = tensor(3, 64, numbers(3 * 64));
  EXPECT_EQ(x.row_range(1, 3).column_range(2, 4).get(), (Floats{67, 68, 131, 132}));
  x.row_range(0, 2).column_range(63, 64).set({-1, -2});
  Floats expected = numbers(3 * 64);
  expected[63] = -1;
  expected[127] = -2;
  EXPECT_EQ(x.get(), expected);
}

TEST_P(OnDevice, ClearsWhatTheFirstWriteLeavesOut) {
  const Tensor x(device, 2, 3);
  x.row_range(1, 2).column_range(1, 2).set({5});
  EXPECT_EQ(x.get(), (Floats{0, 0, 0, 0, 5, 0}));
}

TEST_P(OnDevice, FailsAnOpThatReadsWhatNoOpHasWritten) {
  const Tensor x(device, 2, 3, "blank");
  expect_error<OpError>([&] { x.get(); }, "buffer 'blank' is read before anything was written to it");
}

TEST_P(OnDevice, RefusesOpsOfTheHost) {
  const Tensor x = tensor(2, 2, {1, 2, 3, 4}, "x");
  const Tensor y(device, 2, 2, "y");
  engine.push([view = x.view()] { view.read(); }, {read(x.var())});
  engine.push([view = y.view()] { view.write(); }, {overwrite(y.var())});
  if (device.on_host()) return engine.wait_all();
  expect_error<OpError>(
      [&] { engine.wait(y.var()); },
      {"buffer 'y' in the memory of ", " is accessed by an op on the host; expected an op of a lane of that device"});
  error_of<OpError>([&] { engine.wait_all(); });
  EXPECT_EQ(x.get(), (Floats{1, 2, 3, 4}));
}

TEST_P(OnDevice, RefusesAFirstWriteOnAnotherLane) {
  if (device.on_host()) return;
  const Tensor x(device, 2, 2, "x");
  engine.push([view = x.view()](OpContext& op) { view.write(op.lane()); }, {overwrite(x.var())},
              {.lane = under_test.second_lane});
  expect_error<OpError>([&] { engine.wait(x.var()); }, " is written first by an op of lane '");
  x.set({1, 2, 3, 4});
  EXPECT_EQ(x.get(), (Floats{1, 2, 3, 4}));
}

TEST_P(OnDevice, RefusesBuffersOnLanesOfTheHostAndOperandsInOtherMemory) {
  if (device.on_host()) return;
  expect_error<MisuseError>([&] { Buffer(engine, device.memory, 64, "lost"); },
                            {"'lost' in the memory of ", ": on a host lane; expected an ordered lane of that device"});
  const Device host = host_device(engine);
  const Tensor x = tensor(1, 2, {1, 2}), there(host, 1, 2);
  there.set({3, 4});
  expect_error<MisuseError>(
      [&] {
        apply(device, op::add, {.in = {x, there}});
      },
      "add: a tensor that is not in the memory of device '");
  error_of<MisuseError>([&] { apply(host, op::add, {.in = {x, there}}); });
  error_of<MisuseError>([&] { apply(device, op::neg, {.in = {x}}, there); });
}

/// A copy to the device takes place after the call of set() has returned, and its source is a temporary.
TEST_P(OnDevice, KeepsWhatACopyReads) {
  std::vector<Tensor> all;
  for (int i = 0; i < 50; ++i) all.push_back(tensor(64, 65, Floats(64 * 65, static_cast<float>(i))));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(all[static_cast<std::size_t>(i)].get(), Floats(64 * 65, static_cast<float>(i)));
  }
}

/// A chain of temporaries, of which the device could hold a few at a time.
TEST_P(OnSmallDevice, UsesMemoryAgainInTheOrderOfTheLane) {
  constexpr Index rows = 100, width = 100;  // 40 kB
  Tensor x = tensor(rows, width, Floats(rows * width, 1));
  const Tensor one = tensor(rows, width, Floats(rows * width, 1));
  for (int i = 0; i < 200; ++i) {
    const Tensor twice = apply(device, op::add, {.in = {x, x}});
    const Tensor less = apply(device, op::sub, {.in = {twice, one}});
    x = apply(device, op::mul, {.in = {less, one}});
    if (i % 8 == 7) engine.wait(x.var());
  }
  EXPECT_EQ(x.get(), Floats(rows * width, 1));
}

TEST_P(OnSmallDevice, PoisonsWhatFindsNoMemory) {
  if (device.on_host()) return;  // it has more
  const Tensor x = tensor(1, 2, {1, 2}), large(device, 1 << 10, 1 << 10, "large");
  const Tensor sum =
      apply(device, op::spread_rows,
            {.in = {tensor(1, 1 << 10, Floats(1 << 10, 1))}, .attributes = op::to_rows(Rows::count(1 << 10))});
  expect_error<OpError>([&] { sum.get(); }, "4194304 bytes are not to be had");
  EXPECT_EQ(apply(device, op::neg, {.in = {x}}).get(), (Floats{-1, -2}));
}

TEST_P(OnDevice, FreesBuffersAfterItsLaneWasRemoved) {
  if (device.on_host()) return;
  std::optional<Tensor> x = tensor(1, 2, {1, 2});
  EXPECT_EQ(x->get(), (Floats{1, 2}));
  engine.remove_lane(device.lane);
  x.reset();
  engine.wait_all();
  error_of<MisuseError>([&] { tensor(1, 2, {1, 2}); });
}

TEST_P(OnDevice, KeepsTensorsBeyondTheEndOfTheEngine) {
  std::optional<Tensor> x;
  {
    Engine other({.policy = GetParam().policy, .workers = GetParam().workers});
    const DeviceUnderTest made = GetParam().make(other, std::size_t{1} << 20);
    x.emplace(made.device, 2, 2);
    x->set({1, 2, 3, 4});
  }
  EXPECT_EQ(x->rows(), 2);
  error_of<MisuseError>([&] { x->get(); });
}

TEST_P(OnDevice, BuffersOfAGraphAreAllocatedAndFreedByEachLaunch) {
  const Tensor x = tensor(2, 2, {1, 2, 3, 4}), total = tensor(2, 2, {0, 0, 0, 0});
  const Graph step = engine.capture([&] {
    const Tensor twice = apply(device, op::add, {.in = {x, x}});
    apply(device, op::mul, {.in = {apply(device, op::relu, {.in = {twice}}), x}, .write = Write::add}, total);
  });
  for (int i = 0; i < 3; ++i) step.launch();
  EXPECT_EQ(total.get(), (Floats{6, 24, 54, 96}));
}

/// The host cannot read what it would have to compare.
TEST_P(OnCheckedDevice, IsNotWatched) {
  const Tensor x = tensor(2, 2, {1, 2, 3, 4});
  EXPECT_EQ(apply(device, op::add, {.in = {x, x}}).get(), (Floats{2, 4, 6, 8}));
  engine.wait_all();
}

TEST_P(OnDevice, CutsAnArena) {
  Arena arena(engine, device.memory, 4096, device.memory_lane());
  const auto a = std::make_shared<Buffer>(arena.cut(40)), b = std::make_shared<Buffer>(arena.cut(40));
  EXPECT_LE(arena.left(), 4096 - 2 * device.memory->alignment());
  const Tensor x(a, 2, 5), y(b, 2, 5);
  x.set(numbers(10));
  y.set(numbers(10));
  EXPECT_EQ(apply(device, op::add, {.in = {x, y}}).get(), (Floats{2, 4, 6, 8, 10, 12, 14, 16, 18, 20}));
}

}  // namespace
}  // namespace windrow::testing
