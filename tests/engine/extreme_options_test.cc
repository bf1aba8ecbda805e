// The largest and smallest numbers that options can hold are taken as what they mean, or refused; none overflows.
#include <atomic>
#include <climits>
#include <cstdint>
#include <limits>

#include "tests/engine/sim_device.h"
#include "tests/engine/support.h"
#include "windrow/engine/parallel.h"
#include "windrow/engine/reduction.h"

namespace windrow::testing {
namespace {

using Nanoseconds = std::chrono::nanoseconds;
using TimePoint = std::chrono::steady_clock::time_point;

class ExtremeOptions : public EachPolicy {
 protected:
  /// Ops that push, wait, hold loops, and are launched as a graph.
  static void use(EngineOptions options) {
    Engine engine(std::move(options));
    const Var a = engine.new_var("a"), b = engine.new_var("b");
    std::atomic<int> calls = 0;
    engine.push(
        [&] {
          parallel_for(10, 1, [&](std::size_t, std::size_t) { ++calls; });
          engine.push([&] { ++calls; }, {mutate(b)});
          engine.wait(b);
        },
        {mutate(a)});
    engine.wait(a);
    const Graph graph = engine.capture([&] { engine.push([&] { ++calls; }, {mutate(a)}); });
    graph.launch();
    engine.wait_all();
    EXPECT_EQ(calls, 12);
  }
};
WINDROW_EACH_POLICY(ExtremeOptions);

TEST_P(ExtremeOptions, AnyNumberOfWorkersAndSpareThreadsWorks) {
  for (const int workers : {2, 40'000, INT_MAX / 2 + 1, INT_MAX}) {
    for (const int spares : {0, 256, INT_MAX - 1, INT_MAX}) {
      use({.policy = GetParam(), .workers = workers, .max_spare_threads = spares});
    }
  }
}

TEST_P(ExtremeOptions, AnyLimitAndAnyTimeWorks) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  use({.policy = GetParam(),
       .workers = 2,
       .max_pending_ops = most,
       .max_pending_bytes = most,
       .push_patience = Nanoseconds::max(),
       .watchdog = Nanoseconds::max(),
       .fork_patience = Nanoseconds::max()});
  use({.policy = GetParam(),
       .workers = 2,
       .max_pending_ops = 1,
       .max_pending_bytes = 1,
       .fork_patience = Nanoseconds::min()});
}

TEST_P(ExtremeOptions, AnyTimeLimitOfAWaitWorks) {
  Engine engine({.policy = GetParam(), .workers = 2});
  const Var var = engine.new_var("var");
  engine.push([] {}, {mutate(var)});
  EXPECT_TRUE(engine.wait_for({read(var)}, Nanoseconds::max()));
  EXPECT_TRUE(engine.wait_all_for(Nanoseconds::max()));
  EXPECT_TRUE(engine.wait_for({read(var)}, Nanoseconds::min()));
  EXPECT_TRUE(engine.wait_all_for(Nanoseconds::min()));
  EXPECT_TRUE(engine.shutdown_for(Nanoseconds::max()));
}

TEST_P(ExtremeOptions, AnyDeadlineOfAnOpWorks) {
  Engine engine({.policy = GetParam(), .workers = 2});
  const Var var = engine.new_var("var");
  bool ran = false;
  engine.push([&] { ran = true; }, {mutate(var)}, {.deadline = TimePoint::max()});
  engine.wait(var);
  EXPECT_TRUE(ran);
  engine.push([] {}, {mutate(var)}, {.deadline = TimePoint::min()});
  const std::string text = error_of<OpError>([&] { engine.wait(var); });
  EXPECT_NE(text.find("deadline"), std::string::npos) << text;
  EXPECT_EQ(text.find("by -"), std::string::npos) << text;
}

TEST_P(ExtremeOptions, BytesOfOpsDoNotOverflowTheirSum) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  Engine engine({.policy = GetParam(), .workers = 2, .max_pending_bytes = 1000});
  const Var var = engine.new_var("var");
  int ran = 0;
  engine.push(
      [&] {
        for (int i = 0; i < 4; ++i) engine.push([&] { ++ran; }, {mutate(var)}, {.bytes = most});
        EXPECT_GE(engine.stats().pending_bytes, std::uint64_t{1000});
      },
      {mutate(var)}, {.bytes = most});
  engine.wait_all();
  EXPECT_EQ(ran, 4);
  EXPECT_EQ(engine.stats().pending_bytes, 0u);
}

TEST_P(ExtremeOptions, AnyOptionsOfLanesAndTracesWork) {
  Engine engine({.policy = GetParam(), .workers = 2});
  engine.trace().start({.max_ops_per_thread = std::numeric_limits<std::uint64_t>::max()});
  const LaneId copies = engine.add_lane(HostLane{.name = "copies", .threads = INT_MAX});
  const LaneId device = engine.add_lane(std::make_shared<SimLane>("device"), {.max_in_flight = UINT32_MAX});
  std::atomic<int> ran = 0;
  for (const LaneId lane : {copies, device}) engine.push([&] { ++ran; }, {}, {.priority = INT_MIN, .lane = lane});
  engine.push([&] { ++ran; }, {}, {.priority = INT_MAX});
  engine.wait_all();
  EXPECT_EQ(ran, 3);
}

TEST_P(ExtremeOptions, AReductionOfTooManyPartsIsRefused) {
  Engine engine({.policy = GetParam(), .workers = 2});
  for (const int ways : {INT_MIN, 0, ReductionOptions::most_ways + 1, INT_MAX}) {
    expect_error<MisuseError>([&] { Reduction<int>(engine, 0, {}, {.ways = ways}); },
                              "ways = " + std::to_string(ways) + "; expected 1");
  }
}

}  // namespace
}  // namespace windrow::testing
