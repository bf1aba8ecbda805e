// For each policy one promise that no other policy keeps, and what all of them owe to priority.
#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "support.h"

namespace windrow::testing {
namespace {

/// The order in which `count` independent ops run that all become ready at one moment.
std::vector<int> order_of_independent_ops(EngineOptions options, int count) {
  Engine engine(std::move(options));
  const Var start = engine.new_var();
  std::vector<int> order;  // of one worker
  StuckOp stuck(engine, {mutate(start)});
  for (int i = 0; i < count; ++i) engine.push([&, i] { order.push_back(i); }, {read(start)});
  stuck.let_go();
  engine.wait_all();
  return order;
}

TEST(SerialPolicy, AnOpHasRunOnTheCallersThreadWhenPushReturns) {
  Engine engine({.policy = Policy::serial});
  const Var v = engine.new_var();
  for (int i = 0; i < 20; ++i) {
    std::thread::id where;
    engine.push([&] { where = std::this_thread::get_id(); }, {mutate(v)});
    ASSERT_EQ(where, std::this_thread::get_id());
  }
}

TEST(SerialPolicy, OpsOfManyThreadsRunOneAtATime) {
  Engine engine({.policy = Policy::serial});
  Crowd crowd;
  on_threads(4, [&](int) {
    for (int i = 0; i < 100; ++i) {
      bool ran = false;
      engine.push([&] { crowd.pass([&] { ran = true; }); }, {});
      EXPECT_TRUE(ran);
    }
  });
  EXPECT_EQ(crowd.most(), 1);
}

TEST(SerialPolicy, ATokenRunsNoOtherOpInsideItsCall) {
  // The second token is called after the first, by the same thread; what the first one releases waits for the second.
  Engine engine({.policy = Policy::serial});
  const Var a = engine.new_var(), b = engine.new_var();
  std::vector<OnComplete> tokens;
  engine.push_async([&](OnComplete done) { tokens.push_back(std::move(done)); }, {mutate(a)});
  engine.push_async([&](OnComplete done) { tokens.push_back(std::move(done)); }, {mutate(b)});
  bool ran = false;
  engine.push([&] { engine.wait(b), ran = true; }, {mutate(a)});
  std::thread([&] {
    for (OnComplete& token : tokens) token();
  }).join();
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_TRUE(ran);
}

TEST(SerialPolicy, TwoEnginesMayPushToEachOther) {
  Engine one({.policy = Policy::serial}), two({.policy = Policy::serial});
  std::atomic<int> ran{0};
  const auto play = [&](Engine& mine, Engine& other) {
    for (int i = 0; i < 200; ++i) mine.push([&] { other.push([&] { ++ran; }, {}); }, {});
  };
  on_threads(2, [&](int t) { t == 0 ? play(one, two) : play(two, one); });
  ASSERT_TRUE(one.wait_all_for(patience));
  ASSERT_TRUE(two.wait_all_for(patience));
  EXPECT_EQ(ran, 400);
}

TEST(PoolPolicy, AnyWorkerServesAnyLaneInTheOrderPushed) {
  // One worker for three lanes: serial would use this thread, per_device three threads, chaos another order.
  Engine engine({.policy = Policy::pool, .workers = 1});
  const LaneId lanes[] = {host_lane, engine.add_lane(HostLane{.name = "copies", .device = 1}),
                          engine.add_lane(HostLane{.name = "kernels", .device = 1})};
  std::set<std::thread::id> threads;
  std::vector<int> order, expected;
  // Less than 32: every 32nd take of a worker uses the reverse order (by_priority.h).
  for (int i = 0; i < 30; ++i) {
    expected.push_back(i);
    engine.push([&, i] { threads.insert(std::this_thread::get_id()), order.push_back(i); }, {}, {.lane = lanes[i % 3]});
  }
  engine.wait_all();
  EXPECT_EQ(threads.size(), 1u);
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0u);
  EXPECT_EQ(order, expected);
}

TEST(PoolPolicy, AChainStaysOnItsWorkerWhileNothingElseIsReady) {
  constexpr int ops = 1000;
  Engine engine({.policy = Policy::pool, .workers = 4});
  const Var chain = engine.new_var();
  std::set<std::thread::id> threads;
  const auto push_chain = [&] {
    for (int i = 0; i < ops; ++i) {
      engine.push([&threads] { threads.insert(std::this_thread::get_id()); }, {mutate(chain)});
    }
  };
  StuckOp stuck(engine, {mutate(chain)});
  push_chain();
  stuck.let_go();
  engine.wait_all();
  EXPECT_EQ(threads.size(), 1);
  const Graph graph = engine.capture(push_chain);
  threads.clear();
  graph.launch();
  engine.wait_all();
  EXPECT_EQ(threads.size(), 1);
}

TEST(PoolPolicy, ReadersAreSeenToOverlap) {
  for (const Policy policy : {Policy::pool, Policy::per_device, Policy::chaos}) {
    Engine engine({.policy = policy, .workers = 2});
    const Var v = engine.new_var();
    Crowd crowd;
    for (int i = 0; i < 2; ++i) engine.push([&] { crowd.meet(2); }, {read(v)});
    ASSERT_TRUE(engine.wait_all_for(patience)) << to_string(policy);
  }
}

TEST(PoolPolicy, AsManyOpsOverlapAsThereAreWorkersAndNoMore) {
  constexpr int workers = 3;
  Engine engine({.policy = Policy::pool, .workers = workers});
  Crowd crowd;
  for (int i = 0; i < 30; ++i) engine.push([&] { crowd.meet(workers); }, {});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(crowd.most(), workers);
}

TEST(PerDevicePolicy, ABusyHostKeepsNoDeviceFromRunning) {
  // The only worker waits for ops of other lanes: with serial, pool or chaos they would not run.
  Engine engine({.policy = Policy::per_device, .workers = 1});
  const LaneId copies = engine.add_lane(HostLane{.name = "copies", .device = 1});
  const LaneId kernels = engine.add_lane(HostLane{.name = "kernels", .device = 1});
  Gate copied, computed, urgent;
  int passed = 0;
  engine.push([&] { passed = copied.pass() + computed.pass() + urgent.pass(); }, {});
  engine.push(
      [&] {
        if (copied.pass()) computed.open();
      },
      {}, {.lane = kernels});
  engine.push([&] { copied.open(); }, {}, {.lane = copies});
  engine.push([&] { urgent.open(); }, {}, {.priority = 1});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(passed, 3);
}

TEST(PerDevicePolicy, UrgentOpsUseTheWorkersToo) {
  Engine engine({.policy = Policy::per_device, .workers = 2});
  Crowd crowd;
  for (int i = 0; i < 3; ++i) engine.push([&] { crowd.meet(3); }, {}, {.priority = 1});
  ASSERT_TRUE(engine.wait_all_for(patience));
}

TEST(ChaosPolicy, TheSeedDrawsTheOrder) {
  std::vector<int> straight(64);
  for (int i = 0; i < 64; ++i) straight[i] = i;
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    auto order = order_of_independent_ops({.policy = Policy::chaos, .workers = 1, .chaos_seed = seed}, 64);
    EXPECT_NE(order, straight) << "seed " << seed;
    orders.insert(order);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, straight);
  }
  EXPECT_GE(orders.size(), 3u);
}

TEST(Priority, TheHighestReadyOpRunsFirst) {
  for (const Policy policy : {Policy::serial, Policy::pool, Policy::per_device}) {
    Engine engine({.policy = policy, .workers = 1});
    const LaneId lane = engine.add_lane(HostLane{.name = "lane"});
    const Var start = engine.new_var();
    std::vector<int> order;
    engine.push(
        [&] {
          // All are ready when this op ends, and not before.
          for (const int priority : {0, 3, -1, 3, 7}) {
            engine.push([&order, priority] { order.push_back(priority); }, {read(start)},
                        {.priority = priority, .lane = lane});
          }
        },
        {mutate(start)}, {.lane = lane});
    engine.wait_all();
    EXPECT_EQ(order, (std::vector{7, 3, 3, 0, -1})) << to_string(policy);
  }
}

TEST(Threads, StartLazilyAndRunTheHookFirst) {
  std::atomic<int> started{0};
  thread_local bool prepared = false;
  Engine engine({.policy = Policy::pool, .workers = 4, .on_thread_start = [&] { ++started, prepared = true; }});
  const Var v = engine.new_var();
  EXPECT_EQ(started, 0);
  bool seen = false;
  engine.push([&] { seen = prepared; }, {mutate(v)});
  engine.wait(v);
  EXPECT_TRUE(seen);
  EXPECT_EQ(started, 1);
}

}  // namespace
}  // namespace windrow::testing
