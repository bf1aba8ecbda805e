// Ops of a device among ops of the host: random programs, against the same program on a serial host.
#include <random>

#include "tests/devices/conformance.h"
#include "tests/ops/cases.h"
#include "tests/sanitized.h"
#include "tests/seed.h"
#include "windrow/ops/random.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;

constexpr Index rows = 6, width = 5;

/// Applies operators to random tensors, sets some, draws some, and drops some; the host looks at some. Returns all
/// that it saw.
std::vector<Floats> run(const Device& device, unsigned seed, int steps) {
  Engine& engine = *device.engine;
  std::mt19937 random(seed);
  const auto number = [&](int below) { return static_cast<std::size_t>(random() % static_cast<unsigned>(below)); };
  Generator generator(engine, seed);
  std::vector<Tensor> all;
  for (int i = 0; i < 6; ++i) {
    all.push_back(Tensor(device, rows, width));
    all.back().set(Floats(rows * width, static_cast<float>(i)));
  }
  const Var host_sum = engine.new_var("sum");
  auto sum = std::make_shared<float>(0);
  std::vector<Floats> seen;
  const auto some = [&]() -> Tensor& { return all[number(6)]; };
  for (int step = 0; step < steps; ++step) {
    switch (number(10)) {
      case 0:
        some().set(Floats(rows * width, static_cast<float>(step % 13)));
        break;
      case 1:
        generator.uniform(some(), -1, 1);
        break;
      case 2:
        seen.push_back(some().get());
        break;
      case 3: {
        // A part of a tensor, whose other elements stay.
        const Tensor x = some(), y = some();
        const Tensor part = x.row_range(1, 4), from = y.row_range(1, 4);
        if (!x.overlaps(y)) apply(device, op::scale, {.in = {from}, .attributes = op::scaled_by(0.5)}, part);
        break;
      }
      case 4:
        // An op on the host between ops on the device.
        engine.push([sum, step] { *sum += static_cast<float>(step); }, {read(some().var()), mutate(host_sum)});
        break;
      case 5: {
        const Tensor weights(device, width, width, "weights");
        generator.normal(weights, 0, 0.2f);
        some() = apply(device, op::matmul, {.in = {some(), weights}});
        break;
      }
      case 6: {
        Tensor& out = some();
        const Tensor x = some();
        if (!x.overlaps(out)) apply(device, op::tanh, {.in = {x}, .write = Write::add}, out);
        break;
      }
      default:
        some() = apply(device, number(2) == 0 ? op::add : op::sub,
                       {.in = {apply(device, op::tanh, {.in = {some()}}), some()}});
    }
  }
  for (const Tensor& tensor : all) seen.push_back(tensor.get());
  engine.wait(host_sum);
  seen.push_back({*sum});
  engine.retire(host_sum);
  return seen;
}

TEST_P(OnDevice, RunsRandomProgramsInTheOrderOfTheirPushes) {
  for (unsigned seed = first_seed(); seed < first_seed() + (sanitized ? 3 : 10); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Engine serial({.policy = Policy::serial});
    const std::vector<Floats> expected = run(host_device(serial), seed, 200), actual = run(device, seed, 200);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      expect_close({actual[i].begin(), actual[i].end()}, {expected[i].begin(), expected[i].end()}, 1e-4);
    }
    if (HasFatalFailure()) return;
  }
  engine.wait_all();
}

}  // namespace
}  // namespace windrow::testing
