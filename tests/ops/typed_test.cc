// Ops that receive tensors, buffers and draws as they declare them.
#include <numeric>

#include "tests/ops/host_tensors.h"
#include "windrow/engine/value.h"
#include "windrow/ops/placed_tensor.h"

namespace windrow::testing {
namespace {

class TypedTensors : public HostTensors {};

TEST_F(TypedTensors, AreRowsOfElements) {
  const Tensor x = tensor(2, 64, Floats(128, 2), "x");
  const IntTensor counts = ints(1, 2, {5, 6});
  const Tensor sums(host, 2, 1, "sums");
  engine.push(
      [](Matrix<const float> from, Matrix<const std::int32_t> add, Matrix<float> to) {
        EXPECT_GT(from.stride, from.width);
        for (Index i = 0; i < from.rows; ++i) {
          to(i, 0) = std::accumulate(from.row(i), from.row(i) + from.width, 0.0f) + static_cast<float>(add(0, i));
        }
      },
      read(x), read(counts), overwrite(sums));
  EXPECT_EQ(sums.get(), (Floats{133, 134}));
  engine.push([](Matrix<float> all) { all(1, 0) += 1; }, mutate(sums));
  engine.push([](Matrix<float> all) { all(1, 0) *= 2; }, commute(sums));
  EXPECT_EQ(sums.get(), (Floats{133, 270}));
}

TEST_F(TypedTensors, OfAPartKeepTheRest) {
  const Tensor x = tensor(2, 3, {1, 2, 3, 4, 5, 6}), fresh(host, 2, 2);
  engine.push([](Matrix<float> part) { part(0, 0) = part(1, 0) = 0; }, overwrite(x.column_range(1, 2)));
  EXPECT_EQ(x.get(), (Floats{1, 0, 3, 4, 0, 6}));
  engine.push([](Matrix<float> part) { part(0, 1) = 7; }, overwrite(fresh.row_range(1, 2)));
  EXPECT_EQ(fresh.get()[0], 0);
  EXPECT_EQ(fresh.get()[3], 7);
}

TEST_F(TypedTensors, ThatNobodyHasWrittenFailTheOp) {
  const Tensor x(host, 1, 1, "blank"), y(host, 1, 1, "y");
  engine.push([](Matrix<const float>, Matrix<float>) { ADD_FAILURE(); }, read(x), overwrite(y), {.name = "uses"});
  expect_error<OpError>([&] { y.get(); }, "buffer 'blank' is read before anything was written to it");
  engine.push([](Matrix<float>) { ADD_FAILURE(); }, mutate(x), {.name = "changes"});
  expect_error<OpError>([&] { x.get(); }, "buffer 'blank' is read before anything was written to it");
}

TEST_F(TypedTensors, MayEndBeforeTheirOpsRun) {
  Value<int> gate(engine, "gate");
  Value<float> sum(engine, "sum", 0.0f);
  for (int i = 0; i < 100; ++i) {
    const Tensor x = filled(1, 64, 1);
    engine.push([](const int&, Matrix<const float> from,
                   float& total) { total += std::accumulate(from.row(0), from.row(0) + from.width, 0.0f); },
                read(gate), read(x), mutate(sum));
  }
  EXPECT_EQ(sum.get(), 6400);
}

TEST_F(TypedTensors, OfPlacedTensorsAreTheCopiesOnTheDevice) {
  const Device other = host_device(engine);
  const PlacedTensor w(host, 1, 2, "w");
  engine.push([](Matrix<float> to) { to(0, 0) = 1, to(0, 1) = 2; }, overwrite(w.overwrite_on(host)));
  engine.push([](Matrix<float> all) { all(0, 0) += 4; }, mutate(w.on(other)));
  Value<float> sum = engine.run([](Matrix<const float> all) { return all(0, 0) + all(0, 1); }, read(w.on(host)));
  EXPECT_EQ(sum.get(), 7);
  EXPECT_EQ(w.copies(), 2u);
}

TEST_F(TypedTensors, OfGraphsAreThoseOfEachLaunch) {
  const Tensor x = tensor(1, 1, {1});
  const Graph twice = engine.capture([&] { engine.push([](Matrix<float> all) { all(0, 0) *= 2; }, mutate(x)); });
  for (int i = 0; i < 3; ++i) twice.launch();
  EXPECT_EQ(x.get(), Floats{8});
}

TEST_F(TypedTensors, BuffersAreSpans) {
  const Buffer squares(engine, host.memory, 10 * sizeof(int), "squares");
  engine.push([](std::span<int> all) { std::iota(all.begin(), all.end(), 1); }, overwrite(squares.as<int>()));
  engine.push([](std::span<int> all) { all[0] = 5; }, mutate(squares.as<int>()));
  engine.push([](std::span<int> all) { all[0] += 1; }, commute(squares.as<int>()));
  Value<int> sum = engine.run([](std::span<const int> all) { return std::accumulate(all.begin(), all.end(), 0); },
                              read(squares.as<int>()));
  Value<std::size_t> size = engine.run([](std::span<const std::byte> all) { return all.size(); }, read(squares));
  EXPECT_EQ(sum.get(), 60);
  EXPECT_EQ(size.get(), 40u);
}

TEST_F(TypedTensors, OpsReceiveTheNextDrawOfAGenerator) {
  Generator generator(engine, 11, 2);
  const Tensor first(host, 1, 2);
  generator.uniform(first, 0, 1);
  Value<float> second = engine.run([](const Draw& draw) { return draw.uniform(5); }, mutate(generator));
  Value<float> third = engine.run([](const Draw& draw) { return draw.normal(5); }, mutate(generator));
  EXPECT_EQ(second.get(), Draw(11, 1, 2).uniform(5));
  EXPECT_EQ(third.get(), Draw(11, 2, 2).normal(5));
}

TEST(CheckedTypedTensors, FindNothingToSay) {
  Engine engine({.check = true});
  const Device host = host_device(engine);
  const Tensor x(host, 1, 64), y(host, 1, 64);
  engine.push([](Matrix<float> to) { std::fill_n(to.row(0), to.width, 1.0f); }, overwrite(x));
  engine.push([](Matrix<const float> from, Matrix<float> to) { std::copy_n(from.row(0), from.width, to.row(0)); },
              read(x), overwrite(y));
  EXPECT_EQ(y.get(), Floats(64, 1));
  engine.wait_all();
}

}  // namespace
}  // namespace windrow::testing
