// A thread that pushes far ahead keeps ready ops back and hands them over in groups: they run all the same.
#include <atomic>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "support.h"

namespace windrow::testing {
namespace {

class HandOver : public EngineOnEveryPolicy {
 protected:
  /// Without waiting for the engine.
  static bool becomes(const std::atomic<int>& count, int expected) {
    return comes_true([&] { return count == expected; });
  }
  /// Threads of the engine that have nothing to do sleep by then.
  static void let_workers_sleep() { std::this_thread::sleep_for(30ms); }
  /// So that the thread hands over large groups from now on.
  void push_far_ahead() {
    std::atomic<bool> open = false;
    for (int i = 0; i < GetParam().workers; ++i) engine.push([&] { open.wait(false); }, {});
    for (int i = 0; i < 500; ++i) engine.push([] {}, {});
    open = true;
    open.notify_all();
    engine.wait_all();
  }
};
WINDROW_THREADED_POLICIES(HandOver);

TEST_P(HandOver, OpsRunAlthoughTheThreadBlocks) {
  for (int round = 0; round < 5; ++round) {
    push_far_ahead();
    if (round % 2 == 0) let_workers_sleep();
    std::promise<void> ran;
    engine.push([&] { ran.set_value(); }, {});
    ASSERT_EQ(ran.get_future().wait_for(patience), std::future_status::ready);
  }
}

TEST_P(HandOver, OpsOfAllKindsRunAlthoughTheThreadBlocks) {
  std::atomic<int> ran{0};
  std::vector<Var> vars;
  for (int i = 0; i < 50; ++i) vars.push_back(engine.new_var());
  push_far_ahead();
  let_workers_sleep();
  for (int i = 0; i < 1000; ++i) {
    const Var var = vars[static_cast<std::size_t>(i * 7 % 50)];
    engine.push([&] { ++ran; }, {i % 3 == 0 ? read(var) : mutate(var)}, {.priority = i % 5 - 2});
  }
  EXPECT_TRUE(becomes(ran, 1000));
}

/// Beside it sleep threads that fell asleep when nothing was kept back.
TEST_P(HandOver, AnOpThatWaitsFindsWhatAnotherThreadKeeps) {
  for (int round = 0; round < 5; ++round) {
    engine.push([&] { engine.push([] {}, {mutate(a)}), engine.wait(a); }, {});
    engine.wait_all();
    push_far_ahead();
    let_workers_sleep();
    std::atomic<int> began{0}, ran{0};
    std::promise<void> pushed;
    engine.push([&] { ++began, pushed.get_future().wait(), engine.wait(a); }, {});
    ASSERT_TRUE(becomes(began, 1));
    engine.push([&] { ++ran; }, {mutate(a)});
    pushed.set_value();
    ASSERT_TRUE(becomes(ran, 1));
    engine.wait_all();
  }
}

TEST_P(HandOver, IsNotStarvedByOpsWithoutEnd) {
  push_far_ahead();
  std::atomic<bool> stop{false};
  std::atomic<int> ran{0};
  const std::function<void()> again = [&] {
    if (!stop) engine.push([&] { again(); }, {});
  };
  for (int i = 0; i < 10; ++i) again();
  for (int i = 0; i < 10; ++i) engine.push([&] { ++ran; }, {});
  EXPECT_TRUE(becomes(ran, 10));
  stop = true;
  engine.wait_all();
}

TEST_P(HandOver, AThreadThatIsHeldBackGoesOn) {
  EngineOptions limited = options();
  limited.max_pending_ops = 200;
  limited.max_pending_bytes = 10000;
  Engine held_back(limited);
  std::atomic<int> ran{0};
  for (int i = 0; i < 5000; ++i) held_back.push([&] { ++ran; }, {}, {.bytes = 100});
  EXPECT_TRUE(becomes(ran, 5000));
}

}  // namespace
}  // namespace windrow::testing
