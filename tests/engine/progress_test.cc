// Nothing starves: ops of lower priority have their turn although those of higher priority never end.
#include <random>

#include "support.h"

namespace windrow::testing {
namespace {

/// What never ends, in these tests ends after so many ops.
constexpr int supply = 5000;

class AgingTest : public EachPolicy {};
WINDROW_EACH_POLICY(AgingTest);

TEST_P(AgingTest, AnOpOfLowPriorityRunsAlthoughHigherOnesNeverEnd) {
  // Priorities of ops of which each pushes the next, and that of one op beside them.
  for (const auto& [endless, waiting] : {std::pair(std::vector{1}, 0),
                                         {{0}, -1},
                                         {{-1}, -2},
                                         {{1}, -1},
                                         {{3, 1}, 2},
                                         {{4, 3, 2}, 1},
                                         {{1, -1}, 0},
                                         {{1, 0}, -1}}) {
    // On a lane of one thread, so that with policy per_device too there is one place to run.
    Engine engine({.policy = GetParam(), .workers = 1});
    const LaneId lane = engine.add_lane(HostLane{.name = "lane"});
    int left = supply, left_when_run = 0;
    std::function<void(int)> run_next = [&](int priority) {
      if (--left > 0) engine.push([&, priority] { run_next(priority); }, {}, {.priority = priority, .lane = lane});
    };
    const auto begin = [&, &urgent = endless, last = waiting] {
      for (const int priority : urgent) run_next(priority);
      engine.push([&] { left_when_run = left; }, {}, {.priority = last, .lane = lane});
    };
    engine.push(begin, {}, {.lane = lane});
    ASSERT_TRUE(engine.wait_all_for(patience));
    EXPECT_GT(left_when_run, 0) << "priority " << waiting << " beside " << ::testing::PrintToString(endless);
  }
}

TEST(Aging, AHostOpRunsAlthoughUrgentOpsNeverEndOnBothThreadsOfTheHost) {
  // Each urgent op waits for the next to start, so one is always running.
  constexpr int urgent_ops = 3000;
  Engine engine({.policy = Policy::per_device, .workers = 1});
  std::vector<Gate> started(urgent_ops);
  std::atomic<int> left{urgent_ops};
  int left_when_run = 0;
  std::function<void()> urgent = [&] {
    const int mine = --left;
    started[mine].open();
    if (mine == 0) return;
    engine.push(urgent, {}, {.priority = 1});
    EXPECT_TRUE(started[mine - 1].pass());
  };
  engine.push(
      [&] {
        engine.push(urgent, {}, {.priority = 1});
        engine.push([&] { left_when_run = left; }, {});
      },
      {});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_GT(left_when_run, 0);
}

/// Of another thread, until they are stopped or patience ends; there always are ready ones among them.
class EndlessPushes {
 public:
  explicit EndlessPushes(Engine& engine)
      : thread_([this, &engine] {
          while (go_on()) engine.push([] { std::this_thread::sleep_for(1us); }, {});
        }) {
    while (engine.stats().pending < 1000 && go_on()) std::this_thread::yield();
  }
  bool go_on() const { return !stopped_ && std::chrono::steady_clock::now() < deadline_; }
  void stop() { stopped_ = true; }
  /// Waits for their end. False if patience came before.
  bool were_stopped() {
    thread_.join();
    return std::chrono::steady_clock::now() < deadline_;
  }

 private:
  const std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::now() + patience;
  std::atomic<bool> stopped_{false};
  std::jthread thread_;
};

TEST(Aging, AThreadThatPushesWithoutEndLeavesOthersTheirTurn) {
  Engine engine({.policy = Policy::pool, .workers = 1});
  engine.push([] {}, {});  // so that this thread is known before the other
  engine.wait_all();
  EndlessPushes others(engine);
  engine.push([&] { others.stop(); }, {});
  EXPECT_TRUE(others.were_stopped());
  engine.wait_all();
}

TEST(Aging, WhatUrgentOpsMakeReadyRunsAlthoughTheyAndAnotherThreadGoOnForEver) {
  Engine engine({.policy = Policy::pool, .workers = 1});
  EndlessPushes others(engine);
  std::function<void()> urgent = [&] {
    if (others.go_on()) engine.push(urgent, {}, {.priority = 1});
  };
  engine.push(
      [&] {
        urgent();
        engine.push([] {}, {});
        engine.push([&] { others.stop(); }, {});
      },
      {}, {.priority = 1});
  EXPECT_TRUE(others.were_stopped());
  engine.wait_all();
}

TEST(Aging, TheOrderIsByPriorityButForOneInThirtyTwoOrFewer) {
  // What is passed over has its turn now and then, and no more often.
  for (const Policy policy : {Policy::serial, Policy::per_device}) {
    Engine engine({.policy = policy, .workers = 1});
    const LaneId lane = engine.add_lane(HostLane{.name = "lane"});
    std::vector<int> order;
    engine.push(
        [&] {
          for (int i = 0; i < 3200; ++i) {
            const int priority = i % 2;
            engine.push([&, priority] { order.push_back(priority); }, {}, {.priority = priority, .lane = lane});
          }
        },
        {}, {.lane = lane});
    engine.wait_all();
    ASSERT_EQ(order.size(), 3200u);
    int low = 0, high = 0;
    for (const int priority : order) {
      if (high < 1600) ++(priority == 1 ? high : low);
    }
    EXPECT_LE(low, (high + low) / 32) << to_string(policy);
    EXPECT_GT(low, 0) << to_string(policy);
  }
}

// A thread that pushes far ahead keeps ready ops back and hands them over in groups: they run all the same.

class HandOver : public EngineOnEveryPolicy {
 protected:
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
    Gate ran;
    engine.push([&] { ran.open(); }, {});
    ASSERT_TRUE(ran.pass());
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
  EXPECT_TRUE(comes_true([&] { return ran == 1000; }));
}

/// Beside it sleep threads that fell asleep when nothing was kept back.
TEST_P(HandOver, AnOpThatWaitsFindsWhatAnotherThreadKeeps) {
  for (int round = 0; round < 5; ++round) {
    engine.push([&] { engine.push([] {}, {mutate(a)}), engine.wait(a); }, {});
    engine.wait_all();
    push_far_ahead();
    let_workers_sleep();
    std::atomic<int> began{0}, ran{0};
    Gate pushed;
    engine.push([&] { ++began, pushed.await(), engine.wait(a); }, {});
    ASSERT_TRUE(comes_true([&] { return began == 1; }));
    engine.push([&] { ++ran; }, {mutate(a)});
    pushed.open();
    ASSERT_TRUE(comes_true([&] { return ran == 1; }));
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
  EXPECT_TRUE(comes_true([&] { return ran == 10; }));
  stop = true;
  engine.wait_all();
}

TEST_P(HandOver, AThreadThatIsHeldBackGoesOn) {
  Engine held_back(options({.max_pending_ops = 200, .max_pending_bytes = 10000}));
  std::atomic<int> ran{0};
  for (int i = 0; i < 5000; ++i) held_back.push([&] { ++ran; }, {}, {.bytes = 100});
  EXPECT_TRUE(comes_true([&] { return ran == 5000; }));
}

// Workers that fall asleep just as ops come: each op begins although nobody waits for it in the engine.

class Doze : public EngineOnEveryPolicy {
 protected:
  /// Of one thread: a few ops at a time, after gaps about as long as a worker looks around before it sleeps.
  void push_now_and_then(unsigned seed, std::chrono::milliseconds duration) {
    std::mt19937 random(seed);
    std::vector<Var> vars;
    for (int i = 0; i < 4; ++i) vars.push_back(engine.new_var());
    const auto end = std::chrono::steady_clock::now() + duration;
    while (std::chrono::steady_clock::now() < end && !HasFailure()) {
      idle_for(std::chrono::microseconds(random() % (random() % 4 == 0 ? 200 : 20)));
      int pushed = 0;
      std::atomic<int> ran{0};
      if (random() % 4 == 0) {  // that one's thread sleeps, inside it, until the next has run
        engine.push([&] { engine.wait(vars[3]), ++ran; }, {mutate(vars[0])});
        engine.push([&] { ++ran; }, {mutate(vars[3])});
        pushed += 2;
      }
      for (auto more = static_cast<int>(1 + random() % 10); more > 0; --more, ++pushed) {
        engine.push([&] { ++ran; }, {mutate(vars[random() % 4])});
      }
      await(ran, pushed);
      if (ran != pushed) engine.wait_all();  // the ops write to what is here
    }
  }

 private:
  static void idle_for(std::chrono::microseconds time) {
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < time) std::this_thread::yield();
  }
  void await(const std::atomic<int>& ran, int pushed) {
    const auto begin = std::chrono::steady_clock::now();
    while (ran != pushed && std::chrono::steady_clock::now() - begin < patience) std::this_thread::yield();
    EXPECT_EQ(ran, pushed) << engine.describe_pending();
  }
};
WINDROW_THREADED_POLICIES(Doze);

TEST_P(Doze, NoOpIsLeftWhenWorkersFallAsleep) { push_now_and_then(1, 300ms); }

TEST_P(Doze, NorWhenTwoThreadsPush) {
  std::thread other([&] { push_now_and_then(2, 300ms); });
  push_now_and_then(3, 300ms);
  other.join();
}

}  // namespace
}  // namespace windrow::testing
