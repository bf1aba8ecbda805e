// Recordings of operators on a device: their replays against fresh runs on the same device.
#include "tests/devices/conformance.h"
#include "tests/ops/mlp.h"
#include "tests/ops/random_operators.h"
#include "tests/sanitized.h"

namespace windrow::testing {
namespace {

constexpr int replayed_steps = sanitized ? 20 : 60;

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

TEST_P(OnDevice, RefusesInputsThatLieElsewhere) {
  if (device.on_host()) GTEST_SKIP() << "the host may access all of its memory";
  const Device host = host_device(engine);
  Static step(device, [](const StaticInputs& call) { return call.in; });
  const Tensor x(host, 1, 1, "x");
  EXPECT_NE(error_of<MisuseError>([&] { step({.in = {x}}); }).find(device.name), std::string::npos);
}

}  // namespace
}  // namespace windrow::testing
