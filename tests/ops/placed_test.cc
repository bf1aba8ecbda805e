// Placed tensors: what does not depend on the kind of device. tests/devices/placed_conformance.cc has the rest.
#include <thread>

#include "tests/ops/host_tensors.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/placed_tensor.h"
#include "windrow/ops/static.h"
#include "windrow/ops/tape.h"

namespace windrow::testing {
namespace {

class Placed : public HostTensors {
 protected:
  Tensor negated(const Device& on, const Tensor& x) const { return apply(on, op::neg, {.in = {x}}); }

  Device other = host_device(engine);
  PlacedTensor w{host, 1, 2, "w"};
};

TEST_F(Placed, FailsAnOpThatReadsAValueThatNobodyHasWritten) {
  expect_error<OpError>([&] { w.on(other).get(); }, "buffer 'w' is read before anything was written to it");
  expect_error<OpError>([&] { w.get(); }, "buffer 'w' is read before anything was written to it");
  EXPECT_EQ(w.copies(), 0u);
  w.on(other).set({1, 2});
  EXPECT_EQ(w.get(), (Floats{1, 2}));
}

TEST_F(Placed, KeepsTheOldValueUntilAnOpThatOverwritesIsPushed) {
  w.set({1, 2});
  const Tensor to = w.overwrite_on(other);
  EXPECT_EQ(w.get(), (Floats{1, 2}));
  EXPECT_TRUE(w.valid_on(host));
  to.set({3, 4});
  EXPECT_FALSE(w.valid_on(host));
  EXPECT_EQ(w.get(), (Floats{3, 4}));
  EXPECT_EQ(w.copies(), 0u);
}

TEST_F(Placed, SeesWritesOfAllKindsAndNoReads) {
  w.set({1, 2});
  const auto expect_on_other = [&](bool valid) {
    EXPECT_EQ(w.valid_on(other), valid);
    w.on(other);
  };
  const auto nothing = [] {};
  expect_on_other(false);
  engine.push(nothing, {read(w.on(host).var())});
  expect_on_other(true);
  engine.push(nothing, {mutate(w.on(host).var())});
  expect_on_other(false);
  engine.push(nothing, {commute(w.on(host).var())});
  expect_on_other(false);
  engine.push(nothing, {read(w.on(host).var())});
  expect_on_other(true);
  engine.heal(w.on(host).var());
  expect_on_other(false);
  w.on(host).column_range(0, 1).set({5});
  expect_on_other(false);
  EXPECT_EQ(w.on(other).get(), (Floats{5, 2}));
}

TEST_F(Placed, RefusesWritesOnTwoDevicesAtOnce) {
  w.set({1, 2});
  const Tensor here = w.on(host), there = w.on(other);
  here.set({3, 4});
  there.set({5, 6});
  expect_error<MisuseError>([&] { w.on(host); },
                            "placed tensor 'w': written on 'host' and on 'host' with no call between the two; expected "
                            "a call of on() or overwrite_on() before each push");
}

TEST_F(Placed, RefusesToDropTheOnlyCopy) {
  w.set({1, 2});
  w.drop(other);  // where it is not
  expect_error<MisuseError>([&] { w.drop(host); }, "placed tensor 'w': dropped on 'host', where its only copy is");
  w.on(other);
  w.drop(host);
  EXPECT_FALSE(w.valid_on(host));
  EXPECT_EQ(w.get(), (Floats{1, 2}));
}

TEST_F(Placed, RefusesCapturesRecordingsAndOps) {
  w.set({1, 2});
  const char* const in_capture = "placed tensor 'w': its place is asked for inside a capture or a recording";
  engine.capture([&] { expect_error<MisuseError>([&] { w.on(host); }, in_capture); });
  Static step(host, [&](const StaticInputs&) -> std::vector<Tensor> { return {w.on(host)}; });
  expect_error<MisuseError>([&] { step(); }, in_capture);
  engine.push([&] { w.on(host); }, {}, {.name = "asks"});
  expect_error<OpError>([&] { engine.wait_all(); }, "placed tensor 'w': its place is asked for inside an op");
}

TEST_F(Placed, GraphsUseTensorsThatAreHeld) {
  w.set({1, 2});
  const Tensor here = w.on(other);
  const Graph twice = engine.capture([&] { apply(other, op::add, {.in = {here, here}}, here); });
  for (int i = 1; i <= 3; ++i) {
    w.on(other);
    twice.launch();
    EXPECT_FALSE(w.valid_on(host));
    apply(host, op::neg, {.in = {w.on(host)}}, w.on(host));
  }
  EXPECT_EQ(w.get(), (Floats{-8, -16}));
  EXPECT_EQ(w.copies(), 6u);  // there and back
}

TEST_F(Placed, TypedPushesReceiveTheCopyOnTheDevice) {
  engine.push([](Matrix<float> to) { to.row(0)[0] = 1, to.row(0)[1] = 2; }, overwrite(w.overwrite_on(host)));
  engine.push([](Matrix<float> all) { all.row(0)[0] += 4; }, mutate(w.on(other)));
  engine.push([](Matrix<float> all) { all.row(0)[1] += all.row(0)[0]; }, mutate(w.on(host)));
  EXPECT_EQ(w.get(), (Floats{5, 7}));
  EXPECT_EQ(w.copies(), 2u);
}

TEST_F(Placed, CopiesAreOpsWithTheNameOfTheDevice) {
  Device cpu = host_device(engine);
  cpu.name = "cpu:7";
  w.set({1, 2});
  engine.wait_all();
  engine.trace().start();
  w.on(cpu);
  engine.wait_all();
  engine.trace().stop();
  const std::vector<TraceSummary::Row> ops = engine.trace().summary().ops;
  ASSERT_EQ(ops.size(), 1u);
  EXPECT_EQ(ops[0].name, "copy to cpu:7");
}

TEST_F(Placed, OutlivesTheEngine) {
  std::optional<PlacedTensor> x;
  {
    Engine short_lived({.policy = Policy::serial});
    x = PlacedTensor(host_device(short_lived), 1, 2, "x");
    x->set({1, 2});
  }
  error_of<MisuseError>([&] { x->get(); });
}

TEST_F(Placed, KeepsTheOwnerWhenCopiesAreHealed) {
  const auto fail = [](Matrix<float>) { throw Error("bad"); };
  const auto healed = [&] {
    try {
      engine.wait_all();
      ADD_FAILURE() << "expected an error";
    } catch (const OpError& error) {
      engine.heal(error);
    }
  };
  w.set({1, 2});
  w.on(other);
  engine.push(fail, mutate(w.on(host)));
  w.on(other);  // a copy that is skipped
  w.set({3, 4});
  EXPECT_TRUE(w.valid_on(host));
  healed();
  EXPECT_EQ(w.get(), (Floats{3, 4}));
  EXPECT_EQ(w.on(other).get(), (Floats{3, 4}));
  engine.push(fail, mutate(w.on(host)));
  w.on(other);
  healed();  // both
  EXPECT_EQ(w.on(other).get(), (Floats{3, 4}));
  EXPECT_EQ(w.get(), (Floats{3, 4}));
}

TEST_F(Placed, SeesAWriteThatAnotherThreadPushesDuringACopy) {
  const auto add_one = [](Matrix<float> x) { x(0, 0) += 1; };
  for (int round = 0; round < 500; ++round) {
    w.set({1, 2});
    const Tensor here = w.on(host);
    std::thread writer([&] { engine.push(add_one, mutate(here)); });
    w.on(other);
    writer.join();
    ASSERT_EQ(w.on(other).get(), (Floats{2, 2})) << "round " << round;
  }
}

TEST_F(Placed, IsGoodAgainOnceItIsSet) {
  w.set({1, 2});
  const Tensor here = w.on(host), there = w.on(other);
  here.set({3, 4});
  there.set({5, 6});
  EXPECT_THROW(w.get(), MisuseError);
  EXPECT_THROW(w.on(host), MisuseError);
  w.set({7, 8});
  EXPECT_EQ(w.on(other).get(), (Floats{7, 8}));
  EXPECT_EQ(w.get(), (Floats{7, 8}));
}

TEST_F(Placed, TakesATensorThatAnotherPartHasComputed) {
  const Tensor x(host, 1, 2, "x");
  x.set({3, 4});
  Tape tape(host);
  tape.watch(x);
  tape.backward(tape.apply(op::row_sum, {.in = {tape.apply(op::square, {.in = {x}})}}));
  const PlacedTensor gradient(host, *tape.gradient(x));
  EXPECT_EQ(gradient.on(other).get(), (Floats{6, 8}));
  EXPECT_EQ(gradient.copies(), 1u);
  const PlacedTensor value(host, x);
  apply(host, op::scale, {.in = {x}, .attributes = op::scaled_by(2)}, x);
  EXPECT_EQ(value.on(other).get(), (Floats{6, 8}));
  EXPECT_THROW(PlacedTensor(host, x.column_range(0, 1)), MisuseError);
  EXPECT_EQ(error_of<MisuseError>([&] { PlacedTensor(other, x); }),
            "placed tensor 'placed': a view of a part, or a tensor that is not in the memory of '" + other.name +
                "'; expected a whole tensor there");
}

TEST_F(Placed, RefusesSizesBelowZero) {
  expect_error<MisuseError>([&] { PlacedTensor(host, -1, 2, "x"); },
                            "placed tensor 'x': -1 x 2; expected no negative size");
}

/// Each thread adds to its own value and reads one of all, on devices of its choice.
TEST_F(Placed, ServesSeveralThreads) {
  const std::vector<Device> devices = {host, other, host_device(engine)};
  w.set({1, 1});
  std::vector<PlacedTensor> sums;
  for (int t = 0; t < 3; ++t) {
    sums.push_back(PlacedTensor(host, 1, 2, "sum"));
    sums.back().set({0, 0});
  }
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < 100; ++i) {
          const Device& at = devices[(i / 3 + t) % 3];
          apply(at, op::scale, {.in = {w.on(at)}, .attributes = op::scaled_by(1), .write = Write::add}, sums[t].on(at));
        }
      });
    }
  }
  for (const PlacedTensor& sum : sums) EXPECT_EQ(sum.get(), (Floats{100, 100}));
  EXPECT_EQ(w.copies(), 2u);
}

}  // namespace
}  // namespace windrow::testing
