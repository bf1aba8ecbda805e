// Random programs of operators on a device, against the same on a serial host; and recordings of operators: their
// replays against fresh runs on the same device.
#include "tests/devices/conformance.h"
#include "tests/ops/mlp.h"
#include "tests/ops/random_operators.h"
#include "windrow/ops/static_block.h"

namespace windrow::testing {
namespace {

constexpr int replayed_steps = sanitized ? 20 : 60;

/// With ops on the host between those of the device.
std::vector<Floats> results_with_host_ops(const Device& device, unsigned seed) {
  Engine& engine = *device.engine;
  const Var host_sum = engine.new_var("sum");
  float sum = 0;
  RandomOperators program(device, seed);
  auto results = results_of(device, program, 6, [&](const StaticInputs& inputs) {
    const std::vector<Tensor> made = program.run(inputs);
    for (const Tensor& tensor : made) {
      engine.push([&sum] { sum = 2 * sum + 1; }, {read(tensor.var()), mutate(host_sum)});
    }
    for (const Tensor& input : inputs.in) input.set(Floats(12, 0.25f));
    return made;
  });
  engine.wait(host_sum);
  results.push_back({sum});
  engine.retire(host_sum);
  return results;
}

TEST_P(OnDevice, RunsRandomProgramsInTheOrderOfTheirPushes) {
  for (unsigned seed = first_seed(); seed < first_seed() + (sanitized ? 3 : 10); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Engine serial({.policy = Policy::serial});
    const auto expected = results_with_host_ops(host_device(serial), seed),
               actual = results_with_host_ops(device, seed);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      expect_close({actual[i].begin(), actual[i].end()}, {expected[i].begin(), expected[i].end()}, 1e-4);
    }
    if (HasFatalFailure()) return;
  }
  engine.wait_all();
}

TEST_P(OnDevice, ReplaysTrainingToTheBitsOfAFreshRun) {
  Mlp fresh(device);
  const auto expected =
      trained(device, fresh, replayed_steps, [&](const StaticInputs& batch) { return fresh.step(batch); });
  for (const StaticOptions::Order order : every_order) {
    Mlp mlp(device);
    Static step(device, [&](const StaticInputs& batch) { return mlp.step(batch); }, {.order = order});
    EXPECT_EQ(trained(device, mlp, replayed_steps, [&](const StaticInputs& batch) { return step(batch); }), expected);
    EXPECT_EQ(step.stats().recorded, 1U);
  }
}

TEST_P(OnDevice, ReplaysRandomOperatorsToTheBitsOfFreshRuns) {
  for (std::uint32_t seed = 1; seed <= (sanitized ? 3 : 10); ++seed) {
    SCOPED_TRACE(seed);
    RandomOperators fresh(device, seed);
    const auto expected = results_of(device, fresh, 6, [&](const StaticInputs& inputs) { return fresh.run(inputs); });
    for (const StaticOptions::Order order : every_order) {
      RandomOperators program(device, seed);
      Static step(device, [&](const StaticInputs& inputs) { return program.run(inputs); }, {.order = order});
      EXPECT_EQ(results_of(device, program, 6, [&](const StaticInputs& inputs) { return step(inputs); }), expected);
    }
  }
}

TEST_P(OnDevice, DifferentiatesBlocksAsOperators) {
  Generator draws(engine, 3);
  const auto drawn = [&](Index rows, Index width) {
    const Tensor tensor(device, rows, width, "drawn");
    draws.uniform(tensor, -1, 1);
    return tensor;
  };
  const Tensor weights = drawn(4, 4), bias = drawn(1, 4), start = drawn(3, 4);
  const auto layer = [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    const Tensor sum = tape.apply(op::add_bias, {.in = {tape.apply(op::matmul, {.in = {of.in[0], weights}}), bias}});
    return {tape.apply(op::tanh, {.in = {sum}})};
  };
  const auto gradients = [&](int depth, const StaticBlock::Body& call) {
    Tape tape(device);
    for (const Tensor& tensor : {weights, bias, start}) tape.watch(tensor);
    Tensor x = start;
    for (int i = 0; i < depth; ++i) x = call(tape, {.in = {x}})[0];
    tape.backward(x);
    std::vector<std::vector<float>> all;
    for (const Tensor& tensor : {weights, bias, start}) all.push_back(tape.gradient(tensor)->get());
    return all;
  };
  for (const StaticOptions::Order order : every_order) {
    StaticBlock block(device, {weights, bias}, layer, {.order = order});
    for (const int depth : {3, 1, 5}) {
      const auto expected = gradients(depth, layer);
      const auto got = gradients(depth, [&](Tape& tape, const StaticInputs& of) { return block(tape, of); });
      for (std::size_t k = 0; k < expected.size(); ++k) {
        for (std::size_t i = 0; i < expected[k].size(); ++i) EXPECT_NEAR(got[k][i], expected[k][i], 1e-4);
      }
    }
    EXPECT_EQ(block.forward().recorded, 1U);
    EXPECT_EQ(block.backward().recorded, 1U);
  }
}

TEST_P(OnDevice, RefusesInputsThatLieElsewhere) {
  if (device.on_host()) GTEST_SKIP() << "the host may access all of its memory";
  const Device host = host_device(engine);
  Static step(device, [](const StaticInputs& call) { return call.in; });
  const Tensor x(host, 1, 1, "x");
  expect_error<MisuseError>([&] { step({.in = {x}}); }, device.name);
  Static outer(host, [&](const StaticInputs& call) { return step(call); });
  expect_error<MisuseError>([&] { outer({.in = {x}}); }, device.name);
}

TEST_P(OnDevice, PassesTheFailureOfAReplayedFillOn) {
  for (const StaticOptions::Order order : every_order) {
    int fills = 0;
    Static step(device,
                [&](const StaticInputs&) -> std::vector<Tensor> {
                  const Tensor filled(device, 1, 1, "filled");
                  const auto fill = [&fills](const Matrix<float>& to) {
                    if (++fills == 2) throw std::runtime_error("no data");
                    *to.row(0) = static_cast<float>(fills);
                  };
                  filled.fill(fill, {}, {.name = "fill"});
                  return {apply(device, op::square, {.in = {filled}})};
                },
                {.order = order});
    EXPECT_EQ(step()[0].get(), std::vector<float>{1});
    expect_error<OpError>([&] { step()[0].get(); }, "no data");
    EXPECT_EQ(step()[0].get(), std::vector<float>{9});
  }
}

}  // namespace
}  // namespace windrow::testing
