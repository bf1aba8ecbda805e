// Nothing starves: ops of lower priority have their turn although those of higher priority never end.
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support.h"

namespace windrow::testing {
namespace {

/// What never ends, in these tests ends after so many ops.
constexpr int supply = 5000;

struct AgingCase {
  Policy policy;
  std::vector<int> endless;  ///< priorities of ops of which each pushes the next
  int waiting;               ///< priority of one op beside them
};

std::string case_name(const ::testing::TestParamInfo<AgingCase>& info) {
  const auto number = [](int priority) { return (priority < 0 ? "minus_" : "") + std::to_string(std::abs(priority)); };
  std::string name(to_string(info.param.policy));
  for (const int priority : info.param.endless) name += "_" + number(priority);
  return name + "_beside_" + number(info.param.waiting);
}

std::vector<AgingCase> every_case() {
  std::vector<AgingCase> cases;
  for (const Policy policy : {Policy::serial, Policy::pool, Policy::per_device, Policy::chaos}) {
    for (const auto& [endless, waiting] : {std::pair(std::vector{1}, 0),
                                           {{0}, -1},
                                           {{-1}, -2},
                                           {{1}, -1},
                                           {{3, 1}, 2},
                                           {{4, 3, 2}, 1},
                                           {{1, -1}, 0},
                                           {{1, 0}, -1}}) {
      cases.push_back({policy, endless, waiting});
    }
  }
  return cases;
}

class AgingTest : public ::testing::TestWithParam<AgingCase> {};
INSTANTIATE_TEST_SUITE_P(All, AgingTest, ::testing::ValuesIn(every_case()), case_name);

TEST_P(AgingTest, AnOpOfLowPriorityRunsAlthoughHigherOnesNeverEnd) {
  // On a lane of one thread, so that with policy per_device too there is one place to run.
  Engine engine({.policy = GetParam().policy, .workers = 1});
  const LaneId lane = engine.add_lane(HostLane{.name = "lane"});
  int left = supply, left_when_run = 0;
  std::function<void(int)> run_next = [&](int priority) {
    if (--left > 0) engine.push([&, priority] { run_next(priority); }, {}, {.priority = priority, .lane = lane});
  };
  engine.push(
      [&] {
        for (const int priority : GetParam().endless) run_next(priority);
        engine.push([&] { left_when_run = left; }, {}, {.priority = GetParam().waiting, .lane = lane});
      },
      {}, {.lane = lane});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_GT(left_when_run, 0);
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

TEST(Aging, AChainOfSuccessorsLeavesAPlaceToBackgroundOps) {
  // Links that are successors of each other go from op to op without a queue.
  constexpr int links = 5000;
  Engine engine({.policy = Policy::pool, .workers = 1});
  const Var chain = engine.new_var();
  Gate gate;
  int ran = 0, ran_before = links;
  engine.push([&] { gate.await(); }, {mutate(chain)});
  for (int i = 0; i < links; ++i) engine.push([&] { ++ran; }, {mutate(chain)});
  engine.push([&] { ran_before = ran; }, {}, {.priority = -1});
  gate.open();
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_LT(ran_before, links);
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

}  // namespace
}  // namespace windrow::testing
