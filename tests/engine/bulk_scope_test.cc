// Bulk scopes: all is as without them, also where the thread inside blocks.
#include "windrow/engine/bulk_scope.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "support.h"

namespace windrow {
namespace {

using namespace testing;

class Bulk : public EveryPolicy {
 protected:
  /// Without waiting for the engine.
  static bool comes_true(const std::atomic<int>& count, int expected) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (count != expected && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(100us);
    return count == expected;
  }

  /// Threads of the engine that have nothing to do sleep by then.
  static void let_workers_sleep() { std::this_thread::sleep_for(30ms); }

  Engine engine_{options()};
  const Var v_ = engine_.new_var("v");
};
WINDROW_EVERY_POLICY(Bulk);

class ThreadedBulk : public Bulk {};
WINDROW_THREADED_POLICIES(ThreadedBulk);

TEST_P(Bulk, KeepsTheOrder) {
  std::vector<int> order;
  {
    const BulkScope bulk(engine_);
    for (int i = 0; i < 1000; ++i) engine_.push([&order, i] { order.push_back(i); }, {mutate(v_)});
  }
  engine_.wait(v_);
  ASSERT_EQ(order.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_P(Bulk, LetsOpsRunAlthoughTheThreadBlocks) {
  for (int round = 0; round < 5; ++round) {
    if (round % 2 == 0) let_workers_sleep();
    const BulkScope bulk(engine_);
    std::promise<void> ran;
    engine_.push([&] { ran.set_value(); }, {});
    ASSERT_EQ(ran.get_future().wait_for(patience), std::future_status::ready);
  }
}

TEST_P(Bulk, LetsOpsOfAllKindsRunAlthoughTheThreadBlocks) {
  let_workers_sleep();
  std::atomic<int> ran{0};
  std::vector<Var> vars;
  for (int i = 0; i < 50; ++i) vars.push_back(engine_.new_var());
  const BulkScope bulk(engine_);
  for (int i = 0; i < 1000; ++i) {
    const Var var = vars[static_cast<std::size_t>(i * 7 % 50)];
    engine_.push([&] { ++ran; }, {i % 3 == 0 ? read(var) : mutate(var)}, {.priority = i % 5 - 2});
  }
  EXPECT_TRUE(comes_true(ran, 1000));
}

TEST_P(Bulk, WaitsInsideAreAsOutside) {
  int value = 0;
  const BulkScope bulk(engine_);
  for (int round = 1; round <= 100; ++round) {
    engine_.push([&] { ++value; }, {mutate(v_)});
    if (round % 3 == 0) engine_.wait_all();
    if (round % 3 == 1) engine_.wait(v_);
    if (round % 3 == 2) {
      ASSERT_TRUE(engine_.wait_for({read(v_)}, patience));
    }
    ASSERT_EQ(value, round);
  }
  engine_.push([] { throw std::runtime_error("planned"); }, {mutate(v_)});
  EXPECT_THROW(engine_.wait(v_), OpError);
  engine_.heal(v_);
}

TEST_P(Bulk, Nests) {
  std::atomic<int> ran{0};
  {
    const BulkScope outer(engine_);
    engine_.push([&] { ++ran; }, {});
    {
      const BulkScope inner(engine_);
      engine_.push([&] { ++ran; }, {});
    }
    engine_.push([&] { ++ran; }, {});
    EXPECT_TRUE(comes_true(ran, 3));
  }
  engine_.push([&] { ++ran; }, {});
  EXPECT_TRUE(comes_true(ran, 4));
}

/// Beside it sleep threads that fell asleep when there was no scope.
TEST_P(ThreadedBulk, AnOpThatWaitsFindsWhatAnotherThreadKeeps) {
  for (int round = 0; round < 5; ++round) {
    engine_.push([&] { engine_.push([] {}, {mutate(v_)}), engine_.wait(v_); }, {});
    engine_.wait_all();
    let_workers_sleep();
    std::atomic<int> began{0}, ran{0};
    std::promise<void> pushed;
    const BulkScope bulk(engine_);
    engine_.push([&] { ++began, pushed.get_future().wait(), engine_.wait(v_); }, {});
    ASSERT_TRUE(comes_true(began, 1));
    engine_.push([&] { ++ran; }, {mutate(v_)});
    pushed.set_value();
    ASSERT_TRUE(comes_true(ran, 1));
    engine_.wait_all();
  }
}

TEST_P(ThreadedBulk, IsNotStarvedByOpsWithoutEnd) {
  std::atomic<bool> stop{false};
  std::atomic<int> ran{0};
  const std::function<void()> again = [&] {
    if (!stop) engine_.push([&] { again(); }, {});
  };
  for (int i = 0; i < 10; ++i) again();
  {
    const BulkScope bulk(engine_);
    for (int i = 0; i < 10; ++i) engine_.push([&] { ++ran; }, {});
    EXPECT_TRUE(comes_true(ran, 10));
    stop = true;
  }
  engine_.wait_all();
}

TEST_P(Bulk, EndsWithAnException) {
  std::atomic<int> ran{0};
  EXPECT_THROW(
      {
        const BulkScope bulk(engine_);
        engine_.push([&] { ++ran; }, {});
        engine_.push([&] { ++ran; }, {read(Var())});
      },
      MisuseError);
  EXPECT_TRUE(comes_true(ran, 1));
}

TEST_P(Bulk, MayBeInsideAnOp) {
  int value = 0;
  engine_.push(
      [&] {
        const BulkScope bulk(engine_);
        for (int i = 0; i < 100; ++i) engine_.push([&] { ++value; }, {mutate(v_)});
        if (GetParam().policy != Policy::serial) engine_.wait(v_);
      },
      {});
  engine_.wait_all();
  EXPECT_EQ(value, 100);
}

TEST_P(Bulk, OfSeveralThreadsAtATime) {
  std::atomic<int> ran{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int round = 0; round < 20; ++round) {
          const BulkScope bulk(engine_);
          for (int i = 0; i < 100; ++i) engine_.push([&] { ++ran; }, {i % 10 == 0 ? mutate(v_) : read(v_)});
        }
      });
    }
  }
  EXPECT_TRUE(comes_true(ran, 8000));
}

TEST_P(Bulk, AThreadThatIsHeldBackInsideGoesOn) {
  EngineOptions limited = options();
  limited.max_pending_ops = 10;
  limited.max_pending_bytes = 1000;
  Engine engine(limited);
  std::atomic<int> ran{0};
  const BulkScope bulk(engine);
  for (int i = 0; i < 2000; ++i) engine.push([&] { ++ran; }, {}, {.bytes = 100});
  EXPECT_TRUE(comes_true(ran, 2000));
}

TEST_P(Bulk, AnEngineMayBeShutDownInside) {
  std::atomic<int> ran{0};
  const BulkScope bulk(engine_);
  for (int i = 0; i < 10; ++i) engine_.push([&] { ++ran; }, {});
  engine_.shutdown();
  EXPECT_EQ(ran, 10);
}

}  // namespace
}  // namespace windrow
