// The contract of order, with every policy, beside what the oracle (random_program.h) compares.
#include "windrow/engine/engine.h"

#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support.h"

namespace windrow::testing {
namespace {

class EngineTest : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(EngineTest);

TEST_P(EngineTest, AVariableNamedTwiceIsOneAccessOfTheStrongerKind) {
  int value = 0;
  for (int i = 0; i < 100; ++i) engine.push([&] { ++value; }, {read(a), mutate(a), read(a)});
  engine.wait({read(a), read(a)});
  EXPECT_EQ(value, 100);
  EXPECT_EQ(engine.version(a), 100u);
  engine.push([] { throw std::runtime_error("boom"); }, {mutate(a)});
  engine.push([&] { ++value; }, {overwrite(a), read(a)});  // reads the old value and writes
  EXPECT_THROW(engine.wait(a), OpError);
  engine.push([&] { ++value; }, {overwrite(a), overwrite(a)});
  engine.wait(a);
  EXPECT_EQ(value, 101);
}

TEST_P(EngineTest, ThreadsMayPushOverlappingVariablesInOppositeOrders) {
  const Var d = engine.new_var("d");
  int counter = 0;
  constexpr int threads = 8, pushes = 300;
  on_threads(threads, [&](int t) {
    for (int i = 0; i < pushes; ++i) {
      const bool forth = (t + i) % 2 == 0;
      engine.push([&] { ++counter; },
                  {mutate(forth ? a : d), mutate(forth ? d : a), mutate(forth ? b : c), mutate(forth ? c : b)});
    }
  });
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(counter, threads * pushes);
}

TEST_P(EngineTest, WaitAllTellsAlsoWhileOthersPush) {
  std::jthread other([&](std::stop_token stop) {
    while (!stop.stop_requested()) {
      engine.push([] {}, {mutate(b)});
      engine.wait(b);
    }
  });
  for (int i = 0; i < 300; ++i) {
    engine.push([] { throw std::runtime_error("no"); }, {mutate(a)});
    EXPECT_THROW(engine.wait_all(), OpError);
    engine.heal(a);
  }
}

TEST_P(EngineTest, StatsCountWhatHappened) {
  for (int i = 0; i < 3; ++i) engine.push([] {}, {mutate(a)});
  engine.push([] { throw std::runtime_error("no"); }, {mutate(a)});
  engine.push([] {}, {read(a)});
  EXPECT_THROW(engine.wait_all(), OpError);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.pushed, 5u);
  EXPECT_EQ(stats.pending, 0u);
  EXPECT_EQ(stats.failed, 1u);
  EXPECT_EQ(stats.skipped, 1u);
  EXPECT_EQ(stats.waits, 1u);
}

TEST_P(EngineTest, AnOpMayTouchAThousandVariablesAndCarryMuch) {
  std::vector<Access> all;
  for (int i = 0; i < 1000; ++i) all.push_back(i % 3 == 0 ? read(engine.new_var()) : mutate(engine.new_var()));
  std::array<int, 500> carried{};
  carried.back() = 7;
  int sum = 0;
  for (int i = 0; i < 10; ++i) engine.push([carried, &sum] { sum += carried.back(); }, all);
  engine.wait_all();
  EXPECT_EQ(sum, 70);
}

}  // namespace
}  // namespace windrow::testing
