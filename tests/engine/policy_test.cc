// For each policy one promise that no other policy keeps, and what all of them owe to priority.
#include <cstdio>
#include <random>
#include <set>

#include "support.h"

namespace windrow::testing {
namespace {

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

TEST(SerialPolicy, AThreadThatWaitsForItsTurnGivesUpTheLockThatOpsNeed) {
  // As an interpreter's threads do: they push with the lock, which an op gives up and takes again.
  std::mutex lock;
  std::atomic<int> held{0};
  const auto give_up = [&]() -> std::shared_ptr<void> {
    ++held;
    lock.unlock();
    return {nullptr, [&](std::nullptr_t) { lock.lock(); }};
  };
  Engine engine({.policy = Policy::serial, .on_held = give_up});
  Gate begun;
  std::jthread other([&] {
    const std::lock_guard with_lock(lock);
    engine.push(
        [&] {
          lock.unlock();
          begun.open();
          EXPECT_TRUE(comes_true([&] { return held > 0; }));
          lock.lock();
        },
        {});
  });
  begun.await();
  const std::lock_guard with_lock(lock);
  bool ran = false;
  engine.push([&] { ran = true; }, {});
  EXPECT_TRUE(ran);
  EXPECT_EQ(held, 1);
}

TEST(SerialPolicy, ATokenRunsNoOtherOpInsideItsCall) {
  // The second token is called after the first, by the same thread; what the first one releases waits for the second.
  Engine engine({.policy = Policy::serial});
  const Var a = engine.new_var(), b = engine.new_var();
  Tokens tokens;
  for (const Var var : {a, b}) engine.push_async(tokens.taker(), {mutate(var)});
  bool ran = false;
  engine.push([&] { engine.wait(b), ran = true; }, {mutate(a)});
  std::thread([&] { tokens.complete_one(), tokens.complete_one(); }).join();
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
    Engine engine({.policy = Policy::chaos, .workers = 1, .chaos_seed = seed});
    const Var start = engine.new_var();
    std::vector<int> order;  // of independent ops that all become ready at one moment
    StuckOp stuck(engine, {mutate(start)});
    for (int i = 0; i < 64; ++i) engine.push([&, i] { order.push_back(i); }, {read(start)});
    stuck.let_go();
    engine.wait_all();
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

// In which order ready ops run where the contract says it exactly: policy serial.

/// Ops without accesses, each of which may push others when it runs.
struct OpTree {
  std::vector<int> priorities;
  std::vector<std::vector<std::size_t>> pushes;
};

OpTree random_tree(std::uint64_t seed, std::size_t ops) {
  std::mt19937_64 random(seed);
  OpTree tree{std::vector<int>(ops), std::vector<std::vector<std::size_t>>(ops)};
  for (std::size_t op = 1; op < ops; ++op) {
    tree.priorities[op] = static_cast<int>(random() % 9) - 4;
    tree.pushes[random() % 4 == 0 ? random() % op : 0].push_back(op);
  }
  return tree;
}

/// Looks through all that is ready each time. Where so many takes have passed over ops of lower priority, what was
/// pushed first is next.
std::vector<std::size_t> expected_order(const OpTree& tree) {
  std::vector<std::size_t> ready = {0};  // in the order pushed
  std::vector<std::size_t> order;
  const auto lower = [&](std::size_t a, std::size_t b) { return tree.priorities[a] < tree.priorities[b]; };
  for (std::size_t passed_over = 0; !ready.empty();) {
    auto next = std::max_element(ready.begin(), ready.end(), lower);
    passed_over += lower(*std::min_element(ready.begin(), ready.end(), lower), *next) ? 1 : 0;
    if (passed_over >= 32 + ready.size() / 4) {
      next = ready.begin();
      passed_over = 0;
    }
    const std::size_t op = *next;
    ready.erase(next);
    order.push_back(op);
    ready.insert(ready.end(), tree.pushes[op].begin(), tree.pushes[op].end());
  }
  return order;
}

void push(Engine& engine, const OpTree& tree, std::size_t op, std::vector<std::size_t>& order) {
  engine.push(
      [&, op] {
        order.push_back(op);
        for (const std::size_t next : tree.pushes[op]) push(engine, tree, next, order);
      },
      {}, {.priority = tree.priorities[op]});
}

void expect_order(const OpTree& tree) {
  std::vector<std::size_t> order;
  Engine engine({.policy = Policy::serial});
  push(engine, tree, 0, order);
  ASSERT_TRUE(engine.wait_all_for(patience));
  ASSERT_EQ(order, expected_order(tree));
}

TEST(Order, ReadyOpsRunByPriorityThenInTheOrderPushedButForTheOldestNowAndThen) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    expect_order(random_tree(seed, 50 * seed));
  }
}

TEST(Order, NoneIsLostWhereTheOldestIsTheLowest) {
  // Of 64 ops the first is the last of one sorted run. When its turn has come it pushes as many again, whose run is
  // put behind what is left of the first.
  constexpr std::size_t ops = 64;
  OpTree tree{std::vector<int>(1 + 2 * ops, 1), std::vector<std::vector<std::size_t>>(1 + 2 * ops)};
  tree.priorities[1] = 0;
  for (std::size_t i = 1; i <= ops; ++i) {
    tree.pushes[0].push_back(i);
    tree.pushes[1].push_back(ops + i);
    tree.priorities[ops + i] = -1;
  }
  expect_order(tree);
}

// Policy chaos finds what a program forgot to declare, and finds it again from its seed.

/// Adds up what each of a chain of steps leaves behind. One op in the middle reads `shared` and does not say so. The
/// first op holds back the others until all are pushed, so a seed determines the order.
std::uint64_t run_with_undeclared_read(const EngineOptions& options) {
  constexpr int steps = 20, careless = 9;
  std::uint64_t shared = 0, sum = 0, elsewhere = 0;
  Engine engine(options);
  const Var shared_var = engine.new_var("shared"), sum_var = engine.new_var("sum"), other = engine.new_var("other");
  Gate all_pushed;
  if (options.policy != Policy::serial) {
    engine.push([&] { all_pushed.await(); }, {mutate(shared_var), mutate(sum_var), mutate(other)});
  }
  for (int i = 0; i < steps; ++i) {
    engine.push([&, i] { shared = 3 * shared + static_cast<std::uint64_t>(i); }, {mutate(shared_var)});
    if (i == careless) {
      engine.push([&] { elsewhere += shared; }, {read(sum_var), mutate(other)});  // and read(shared_var)
    } else {
      engine.push([&] { sum += shared; }, {read(shared_var), mutate(sum_var)});
    }
  }
  all_pushed.open();
  EXPECT_TRUE(engine.wait_all_for(patience));
  return sum + 31 * elsewhere;
}

// One worker: ops do not overlap, so the program has no race, only a wrong order.
EngineOptions chaos(std::uint64_t seed) { return {.policy = Policy::chaos, .workers = 1, .chaos_seed = seed}; }

TEST(Chaos, AnUndeclaredReadIsFoundWithinAThousandRunsAndSeenAgain) {
  const std::uint64_t right = run_with_undeclared_read({.policy = Policy::serial});
  bool found_right = false;
  std::uint64_t found = 0, value = right;
  for (std::uint64_t seed = 1; seed <= 1000 && (!found_right || found == 0); ++seed) {
    const std::uint64_t sum = run_with_undeclared_read(chaos(seed));
    found_right |= sum == right;
    if (sum != right && found == 0) found = seed, value = sum;
  }
  EXPECT_TRUE(found_right);
  ASSERT_NE(found, 0u) << "not found with seeds 1 to 1000";
  std::printf("found with seed %llu\n", static_cast<unsigned long long>(found));
  for (int again = 0; again < 5; ++again) EXPECT_EQ(run_with_undeclared_read(chaos(found)), value);
}

}  // namespace
}  // namespace windrow::testing
