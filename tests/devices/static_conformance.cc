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

/// A cell with a memory: h' = tanh(x W + h U + b) * sigmoid(c), c' = c + h'. Sentences are of any length; their losses
/// are of the last h, and of c for every second one.
TEST_P(OnDevice, DifferentiatesBlocksAsOperators) {
  Generator draws(engine, 3);
  const auto drawn = [&](Index rows, Index width) {
    const Tensor tensor(device, rows, width, "drawn");
    draws.uniform(tensor, -1, 1);
    return tensor;
  };
  const Tensor w = drawn(5, 5), u = drawn(5, 5), b = drawn(1, 5), start = drawn(3, 5);
  const auto cell = [&](Tape& tape, const StaticInputs& of) -> std::vector<Tensor> {
    const auto product = [&](std::size_t k, const Tensor& by) {
      return tape.apply(op::matmul, {.in = {of.in[k], by}});
    };
    const Tensor sum = tape.apply(op::add, {.in = {product(0, w), product(1, u)}});
    const Tensor inner = tape.apply(op::tanh, {.in = {tape.apply(op::add_bias, {.in = {sum, b}})}});
    const Tensor next = tape.apply(op::mul, {.in = {inner, tape.apply(op::sigmoid, {.in = {of.in[2]}})}});
    return {next, tape.apply(op::add, {.in = {of.in[2], next}})};
  };
  const auto differentiated = [&](const std::vector<Tensor>& words, const StaticBlock::Body& call) {
    Tape tape(device);
    std::vector<Tensor> watched = {w, u, b}, state = {start, start};
    watched.insert(watched.end(), words.begin(), words.end());
    for (const Tensor& tensor : watched) tape.watch(tensor);
    for (const Tensor& word : words) state = call(tape, {.in = {word, state[0], state[1]}});
    Tensor loss = tape.apply(op::square, {.in = {state[0]}});
    if (words.size() % 2 == 0) loss = tape.apply(op::add, {.in = {loss, state[1]}});
    tape.backward(loss);
    std::vector<Floats> all = {loss.get()};
    for (const Tensor& tensor : watched) all.push_back(tape.gradient(tensor)->get());
    return all;
  };
  for (const StaticOptions::Order order : every_order) {
    StaticBlock block(device, {w, u, b}, cell, {.order = order});
    std::uint64_t calls = 0;
    for (const std::size_t length : {1, 4, 2, 3, 1}) {
      std::vector<Tensor> words;
      while (words.size() < length) words.push_back(drawn(3, 5));
      calls += length;
      const auto expected = differentiated(words, cell);
      const auto got = differentiated(words, [&](Tape& tape, const StaticInputs& of) { return block(tape, of); });
      for (std::size_t k = 0; k < expected.size(); ++k) expect_near(got[k], expected[k], 1e-4);
    }
    EXPECT_EQ(block.forward().recorded, 1U);
    EXPECT_EQ(block.forward().replayed, calls - 1);
    EXPECT_EQ(block.backward().recorded + block.backward().replayed, calls);
    EXPECT_LE(block.backward().recorded, 4U);  // of h or c or both; the first word has no earlier state to pass it to
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
