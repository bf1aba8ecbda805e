// Waiting inside ops where no thread is left to take the place of the one that waits.
#include <vector>

#include "support.h"

namespace windrow::testing {
namespace {

TEST(WaitLimitTest, ASerialOpThatLeavesNoThreadWaitsForOthersAllTheSame) {
  Engine engine({.policy = Policy::serial, .max_spare_threads = 0});
  const Var a = engine.new_var(), b = engine.new_var();
  std::vector<OnComplete> tokens;
  const auto keep = [&](OnComplete done) { tokens.push_back(std::move(done)); };
  engine.push_async(keep, {mutate(a)});
  engine.push_async(keep, {mutate(b)});
  Gate begun, waited;
  engine.push([&] { begun.open(), engine.wait(b), waited.open(); }, {mutate(a)});
  tokens[0]();
  EXPECT_TRUE(begun.pass());
  tokens[1]();
  EXPECT_TRUE(waited.pass());
  ASSERT_TRUE(engine.wait_all_for(patience));
}

TEST(WaitLimitTest, AWaitThatLeavesNoThreadRunsWhatItDependsOn) {
  Engine engine({.policy = Policy::pool, .workers = 1, .max_spare_threads = 0});
  const Var v = engine.new_var();
  std::vector<int> ran;
  const auto with_limit = [&](std::chrono::nanoseconds limit) {
    const Var first = engine.new_var(), second = engine.new_var();
    engine.push([&] { ran.push_back(1); }, {mutate(first)}, {.priority = -1});
    engine.push([&] { ran.push_back(2); }, {read(first), mutate(second)}, {.priority = 1});
    while (!engine.wait_for({read(second)}, limit)) {
    }
  };
  engine.push([&] { with_limit(patience), with_limit(0ns); }, {mutate(v)});
  engine.wait(v);
  EXPECT_EQ(ran, (std::vector{1, 2, 1, 2}));
}

TEST(WaitLimitTest, AWaitForAllOfAnotherEngineThatWouldLeaveNoThreadIsRefused) {
  Engine engine({.policy = Policy::pool, .workers = 1, .max_spare_threads = 0}), other;
  const Var v = engine.new_var();
  engine.push([&] { other.wait_all(); }, {mutate(v)});
  const std::string text = error_of<OpError>([&] { engine.wait(v); });
  EXPECT_NE(text.find("max_spare_threads = 0"), std::string::npos) << text;
}

TEST(WaitLimitTest, SpareThreadsAreReused) {
  Engine engine({.policy = Policy::pool, .workers = 1});
  const Var v = engine.new_var();
  for (int i = 0; i < 200; ++i) {
    engine.push(
        [&] {
          const Var inner = engine.new_var();
          engine.push([] {}, {mutate(inner)});
          engine.wait(inner);
          engine.retire(inner);
        },
        {mutate(v)});
  }
  engine.wait_all();
  EXPECT_LE(engine.stats().spare_threads, 2u);
}

}  // namespace
}  // namespace windrow::testing
