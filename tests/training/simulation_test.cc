// Steps in virtual time, against formulas.
#include "windrow/training/internal/simulation.h"

#include <cmath>
#include <functional>

#include "tests/engine/support.h"

namespace windrow::testing {
namespace {

using Time = VirtualClock::Time;

/// Layers of 1 MB, whose sum takes `sum` with two members: neither gaps nor latencies.
SimulationOptions two_members(int layers, Time sum) {
  constexpr std::size_t bytes = 1'000'000;
  return {.layers = std::vector<SimulatedLayer>(static_cast<std::size_t>(layers),
                                                {.bytes = bytes, .forward = 10us, .backward = 20us}),
          .devices = 2,
          .network = {.bandwidth = bytes / (1e-9 * static_cast<double>(sum.count())),
                      .latency = 0ns,
                      .gap = 0ns,
                      .window_bytes = bytes},
          .parallel = {.bucket_bytes = 1, .part_bytes = 0, .priority = false}};
}

/// 12 layers; the network takes `ratio` of the time of the computation.
SimulationOptions twelve_layers(double ratio) {
  constexpr std::size_t bytes = 25'000'000;
  constexpr int devices = 16;
  const double computation = 12 * 9e-3;
  return {.layers = std::vector<SimulatedLayer>(12, {.bytes = bytes, .forward = 3ms, .backward = 6ms, .update = 80us}),
          .devices = devices,
          .network = {.bandwidth = 2.0 * (devices - 1) / devices * 12 * bytes / (ratio * computation)}};
}

TEST(Simulation, OneLayerWithoutOverlapTakesTheSumOfItsParts) {
  for (const int devices : {2, 5, 64}) {
    for (const auto algorithm : {NetworkModel::Algorithm::ring, NetworkModel::Algorithm::tree}) {
      const NetworkModel network{.algorithm = algorithm, .bandwidth = 1e9, .latency = 7us, .gap = 300ns};
      const SimulatedStep step =
          simulate({.layers = {{.bytes = 4'000'000, .forward = 1ms, .backward = 2ms, .update = 30us}},
                    .devices = devices,
                    .network = network,
                    .parallel = {.part_bytes = 0},
                    .overlap = false});
      const bool ring = algorithm == NetworkModel::Algorithm::ring;
      const double messages = ring ? 2 * (devices - 1) : 2 * std::ceil(std::log2(devices));
      const double share = ring ? 1.0 * (devices - 1) / devices : 1;
      const double sum = messages * (7e3 + 300) + 2 * share * 4e6;
      EXPECT_EQ(step.device, 3030us);
      EXPECT_EQ(step.computation, 3030us);
      EXPECT_EQ(step.step - step.computation, step.network);
      EXPECT_NEAR(static_cast<double>(step.network.count()), sum, 1);
      EXPECT_EQ(step.hidden(), 0);
    }
  }
}

TEST(Simulation, OneDeviceTakesItsOwnTime) {
  SimulationOptions options = twelve_layers(1);
  options.devices = 1;
  const SimulatedStep step = simulate(options);
  EXPECT_EQ(step.step, step.device);
  EXPECT_EQ(step.efficiency(), 1);
  EXPECT_EQ(step.limit(), "computation");
  options.jitter = 0.9;
  for (options.seed = 1; options.seed <= 10; ++options.seed) {
    const SimulatedStep jittery = simulate(options);
    EXPECT_NEAR(jittery.efficiency(), 1, 0.02) << "seed " << options.seed;
    EXPECT_EQ(jittery.limit(), "computation");
  }
}

TEST(Simulation, OverlapBucketsPartsAndPriorityTakeTheTimesOfFormulas) {
  // Sums that are shorter than the backward pass of a layer: only the last one is exposed.
  EXPECT_EQ(simulate(two_members(4, 15us)).step, 4 * 30us + 15us);
  // Longer ones follow each other from the first gradient on. The forward pass waits for that of the first layer, which
  // is the last one.
  SimulationOptions options = two_members(4, 50us);
  EXPECT_EQ(simulate(options).step, 20us + 4 * 50us + 4 * 10us);
  // One bucket begins at the end of the backward pass.
  options.parallel.bucket_bytes = 4'000'000;
  EXPECT_EQ(simulate(options).step, 120us + 4 * 50us);
  options.parallel.bucket_bytes = 1;
  // With priority, the sum of the last layer moves first, since it is there first; then those of the second, the first
  // and the third layer. From there on, the third and the last layer compute, and the last gradient is there again.
  options.parallel.priority = true;
  EXPECT_EQ(simulate(options).step, 4 * 50us + 10us + 10us + 20us);
  // In parts, the sum of the last layer ends last, and only that layer is left.
  options.parallel.part_bytes = 100'000;
  options.network.window_bytes = 100'000;
  EXPECT_EQ(simulate(options).step, 4 * 50us + 10us + 20us);
  EXPECT_EQ(simulate(options).parts, 40u);
  options.overlap = false;
  EXPECT_EQ(simulate(options).step, 120us + 4 * 50us);
  EXPECT_EQ(simulate(options).hidden(), 0);
}

TEST(Simulation, HidesNineTenthsOfCommunicationThatTakesHalfOfTheComputation) {
  SimulationOptions options = twelve_layers(0.5);
  EXPECT_GE(simulate(options).hidden(), 0.9);
  options.overlap = false;
  EXPECT_EQ(simulate(options).hidden(), 0);
}

TEST(Simulation, PrioritySavesAFifthWhereTheNetworkIsTheLimit) {
  SimulationOptions options = twelve_layers(1.2);
  const SimulatedStep with = simulate(options);
  options.parallel.priority = false;
  const SimulatedStep without = simulate(options);
  EXPECT_GE(without.step, 1.2 * with.step);
  EXPECT_EQ(without.limit(), "bandwidth");
}

TEST(Simulation, TheSameSeedGivesTheSameTimes) {
  const auto times = [](std::uint64_t seed) {
    SimulationOptions options = twelve_layers(0.8);
    options.jitter = 0.2;
    options.seed = seed;
    const SimulatedStep step = simulate(options);
    EXPECT_GT(step.computation, step.device) << "devices wait for the slowest one";
    return std::tuple(step.step, step.computation, step.network, step.ops);
  };
  EXPECT_EQ(times(1), times(1));
  EXPECT_NE(times(1), times(2));
}

TEST(VirtualTime, NamesTheOpsThatNothingEnds) {
  VirtualClock clock;
  std::optional<OnComplete> forgotten;
  clock.engine().push_async([&](OnComplete done) { forgotten.emplace(std::move(done)); }, {}, {.name = "forgotten"});
  expect_error<Error>([&] { clock.run(); }, "forgotten");
  (*forgotten)();
}

TEST(Simulation, RefusesWhatItCannotSimulate) {
  const SimulationOptions good = {.layers = {{.bytes = 4, .forward = 1us}}, .devices = 2};
  EXPECT_EQ(simulate(good).device, 1us);
  const auto refuses = [&good](const std::string& says, const std::function<void(SimulationOptions&)>& change) {
    SimulationOptions options = good;
    change(options);
    expect_error<MisuseError>([&] { simulate(options); }, says);
  };
  refuses("no layers", [](auto& o) { o.layers.clear(); });
  refuses("6 bytes of a layer", [](auto& o) { o.layers[0].bytes = 6; });
  refuses("a time of a layer below 0", [](auto& o) { o.layers[0].update = -1ns; });
  refuses("layers that take no time", [](auto& o) { o.layers[0].forward = 0ns; });
  refuses("0 devices", [](auto& o) { o.devices = 0; });
  refuses("1 steps", [](auto& o) { o.steps = 1; });
  refuses("jitter", [](auto& o) { o.jitter = std::nan(""); });
  refuses("bandwidth", [](auto& o) { o.network.bandwidth = std::nan(""); });
  refuses("latency below 0", [](auto& o) { o.network.latency = -1ns; });
  refuses("gap below 0", [](auto& o) { o.network.gap = -1ns; });
  refuses("buckets of 0 bytes", [](auto& o) { o.parallel.bucket_bytes = 0; });
  refuses("3 bytes of a part", [](auto& o) { o.parallel.part_bytes = 3; });
  refuses("compression", [](auto& o) { o.parallel.compression.form = Compression::Form::bfloat16; });
  refuses("2147483647 devices x 1 layers x 2147483647 steps", [](auto& o) { o.devices = o.steps = 2147483647; });
  refuses("more than 10000000 parts", [](auto& o) {
    o.layers[0].bytes = 40'000'000;
    o.parallel.part_bytes = 4;
  });
  refuses("2^53 bytes", [](auto& o) { o.layers[0].bytes = std::size_t{1} << 60; });
  refuses("146 years", [](auto& o) { o.network.latency = Time::max(); });
  refuses("146 years", [](auto& o) { o.network.bandwidth = 1e-12; });
  refuses("146 years", [](auto& o) { o.layers[0].forward = Time::max(); });
  VirtualClock clock;
  EXPECT_THROW(SimulatedGroup(clock, 0, {}), MisuseError);
  const SimulatedGroup group(clock, 1, {});
  const Tensor x(group[0].device(), 1, 1);
  group[0].broadcast(std::span(&x, 1), 0);
  EXPECT_THROW(clock.run(), OpError);
}

}  // namespace
}  // namespace windrow::testing
