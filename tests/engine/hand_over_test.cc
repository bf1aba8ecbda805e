// A thread that pushes far ahead keeps ready ops back and hands them over in groups: they run all the same.
#include <atomic>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "support.h"

namespace windrow::testing {
namespace {

class HandOver : public EveryPolicy {
 protected:
  /// Without waiting for the engine.
  static bool comes_true(const std::atomic<int>& count, int expected) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (count != expected && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(100us);
    return count == expected;
  }
  /// Threads of the engine that have nothing to do sleep by then.
  static void let_workers_sleep() { std::this_thread::sleep_for(30ms); }
  /// So that the thread hands over large groups from now on.
  void push_far_ahead() {
    std::atomic<bool> open = false;
    for (int i = 0; i < GetParam().workers; ++i) engine_.push([&] { open.wait(false); }, {});
    for (int i = 0; i < 500; ++i) engine_.push([] {}, {});
    open = true;
    open.notify_all();
    engine_.wait_all();
  }

  Engine engine_{options()};
  const Var v_ = engine_.new_var("v");
};
WINDROW_THREADED_POLICIES(HandOver);

TEST_P(HandOver, OpsRunAlthoughTheThreadBlocks) {
  for (int round = 0; round < 5; ++round) {
    push_far_ahead();
    if (round % 2 == 0) let_workers_sleep();
    std::promise<void> ran;
    engine_.push([&] { ran.set_value(); }, {});
    ASSERT_EQ(ran.get_future().wait_for(patience), std::future_status::ready);
  }
}

TEST_P(HandOver, OpsOfAllKindsRunAlthoughTheThreadBlocks) {
  std::atomic<int> ran{0};
  std::vector<Var> vars;
  for (int i = 0; i < 50; ++i) vars.push_back(engine_.new_var());
  push_far_ahead();
  let_workers_sleep();
  for (int i = 0; i < 1000; ++i) {
    const Var var = vars[static_cast<std::size_t>(i * 7 % 50)];
    engine_.push([&] { ++ran; }, {i % 3 == 0 ? read(var) : mutate(var)}, {.priority = i % 5 - 2});
  }
  EXPECT_TRUE(comes_true(ran, 1000));
}

/// Beside it sleep threads that fell asleep when nothing was kept back.
TEST_P(HandOver, AnOpThatWaitsFindsWhatAnotherThreadKeeps) {
  for (int round = 0; round < 5; ++round) {
    engine_.push([&] { engine_.push([] {}, {mutate(v_)}), engine_.wait(v_); }, {});
    engine_.wait_all();
    push_far_ahead();
    let_workers_sleep();
    std::atomic<int> began{0}, ran{0};
    std::promise<void> pushed;
    engine_.push([&] { ++began, pushed.get_future().wait(), engine_.wait(v_); }, {});
    ASSERT_TRUE(comes_true(began, 1));
    engine_.push([&] { ++ran; }, {mutate(v_)});
    pushed.set_value();
    ASSERT_TRUE(comes_true(ran, 1));
    engine_.wait_all();
  }
}

TEST_P(HandOver, IsNotStarvedByOpsWithoutEnd) {
  push_far_ahead();
  std::atomic<bool> stop{false};
  std::atomic<int> ran{0};
  const std::function<void()> again = [&] {
    if (!stop) engine_.push([&] { again(); }, {});
  };
  for (int i = 0; i < 10; ++i) again();
  for (int i = 0; i < 10; ++i) engine_.push([&] { ++ran; }, {});
  EXPECT_TRUE(comes_true(ran, 10));
  stop = true;
  engine_.wait_all();
}

TEST_P(HandOver, AThreadThatIsHeldBackGoesOn) {
  EngineOptions limited = options();
  limited.max_pending_ops = 200;
  limited.max_pending_bytes = 10000;
  Engine engine(limited);
  std::atomic<int> ran{0};
  for (int i = 0; i < 5000; ++i) engine.push([&] { ++ran; }, {}, {.bytes = 100});
  EXPECT_TRUE(comes_true(ran, 5000));
}

}  // namespace
}  // namespace windrow::testing
