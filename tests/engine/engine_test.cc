// The contract of order, with every policy.
#include "windrow/engine/engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support.h"

namespace windrow::testing {
namespace {

class EngineTest : public EveryPolicy {};
WINDROW_EVERY_POLICY(EngineTest);
class ThreadedEngineTest : public EveryPolicy {};
WINDROW_THREADED_POLICIES(ThreadedEngineTest);

TEST_P(EngineTest, OpsOnOneVariableRunInPushOrder) {
  Engine engine(options());
  const Var v = engine.new_var("v");
  std::vector<int> order;
  for (int i = 0; i < 200; ++i) {
    engine.push([&order, i] { order.push_back(i); }, {mutate(v)});
  }
  engine.wait(v);
  ASSERT_EQ(order.size(), 200u);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(order[i], i);
}

TEST_P(EngineTest, AWriterWaitsForAllReadersBeforeIt) {
  Engine engine(options());
  const Var v = engine.new_var();
  int value = 1;
  std::atomic<int> seen{0};
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 10; ++i) engine.push([&] { seen += value; }, {read(v)});
    engine.push([&] { value = -value; }, {mutate(v)});
  }
  engine.wait_all();
  EXPECT_EQ(seen, 0);  // ten rounds of +10, ten of -10
  EXPECT_EQ(value, 1);
}

TEST_P(EngineTest, AnOpWithoutVariablesRuns) {
  Engine engine(options());
  std::atomic<int> ran{0};
  for (int i = 0; i < 50; ++i) engine.push([&] { ++ran; }, {});
  engine.wait_all();
  EXPECT_EQ(ran, 50);
}

TEST_P(EngineTest, AVariableNamedTwiceIsOneAccessOfTheStrongerKind) {
  Engine engine(options());
  const Var v = engine.new_var();
  int value = 0;
  for (int i = 0; i < 100; ++i) engine.push([&] { ++value; }, {read(v), mutate(v), read(v)});
  engine.wait({read(v), read(v)});
  EXPECT_EQ(value, 100);
  EXPECT_EQ(engine.version(v), 100u);
}

TEST_P(EngineTest, VersionCountsTheOpsThatChangedTheVariable) {
  Engine engine(options());
  const Var v = engine.new_var();
  EXPECT_EQ(engine.version(v), 0u);
  engine.push([] {}, {mutate(v)});
  engine.push([] {}, {read(v)});
  engine.push([] {}, {overwrite(v)});
  engine.wait(v);
  EXPECT_EQ(engine.version(v), 2u);
}

TEST_P(EngineTest, OpsPushedByAnOpRun) {
  Engine engine(options());
  const Var v = engine.new_var();
  std::vector<int> order;
  engine.push(
      [&] {
        order.push_back(1);
        engine.push([&] { order.push_back(3); }, {mutate(v)});
        order.push_back(2);
      },
      {mutate(v)});
  engine.wait_all();
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
}

TEST_P(EngineTest, AnAsyncOpIsDoneWhenItsTokenIsCalled) {
  Engine engine(options());
  const Var v = engine.new_var();
  int value = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 5; ++i) {
    engine.push_async(
        [&](OnComplete done) {
          threads.emplace_back([&value, done = std::move(done)]() mutable {
            std::this_thread::sleep_for(2ms);
            ++value;
            done();
          });
        },
        {mutate(v)});
    engine.push([&] { value *= 2; }, {mutate(v)});
  }
  engine.wait(v);
  EXPECT_EQ(value, 62);
}

TEST_P(EngineTest, AnAsyncOpMayCompleteInsideItsFunction) {
  Engine engine(options());
  const Var v = engine.new_var();
  int value = 0;
  for (int i = 0; i < 20; ++i) {
    engine.push_async([&](OnComplete done) { ++value, done(); }, {mutate(v)});
  }
  engine.wait(v);
  EXPECT_EQ(value, 20);
}

TEST_P(EngineTest, ADeclaredOpIsPushedAgainAndAgain) {
  Engine engine(options());
  const Var a = engine.new_var(), b = engine.new_var();
  int x = 0, y = 0;
  const DeclaredOp step = engine.declare([&] { y += ++x; }, {mutate(a), mutate(b)}, {.name = "step"});
  for (int i = 0; i < 10; ++i) engine.push(step);
  engine.wait(b);
  EXPECT_EQ(y, 55);
}

TEST_P(EngineTest, CapturesAreGoneBeforeASuccessorRuns) {
  Engine engine(options());
  const Var v = engine.new_var();
  auto token = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = token;
  bool gone = false;
  engine.push([token = std::move(token)] {}, {mutate(v)});
  engine.push([&] { gone = watch.expired(); }, {mutate(v)});
  engine.wait(v);
  EXPECT_TRUE(gone);
}

TEST_P(EngineTest, AnOpMayTouchManyVariablesAndCaptureMuch) {
  Engine engine(options());
  std::vector<Var> vars;
  std::vector<Access> accesses;
  for (int i = 0; i < 300; ++i) accesses.push_back(mutate(vars.emplace_back(engine.new_var())));
  struct Big {
    char bytes[1000] = {};
  } big;
  big.bytes[999] = 7;
  int sum = 0;
  for (int i = 0; i < 20; ++i) engine.push([&sum, big] { sum += big.bytes[999]; }, accesses);
  engine.wait(vars[123]);
  EXPECT_EQ(sum, 140);
}

TEST_P(EngineTest, WaitForMutateReturnsAfterEarlierReaders) {
  Engine engine(options());
  const Var v = engine.new_var();
  std::atomic<int> readers{0};
  for (int i = 0; i < 8; ++i) {
    engine.push([&] { std::this_thread::sleep_for(1ms), ++readers; }, {read(v)});
  }
  engine.wait({mutate(v)});
  EXPECT_EQ(readers, 8);
  EXPECT_EQ(engine.version(v), 0u);
}

TEST_P(ThreadedEngineTest, WaitForGivesUpInTime) {
  Engine engine(options());
  const Var v = engine.new_var();
  Gate gate;
  engine.push([&] { EXPECT_TRUE(gate.pass()); }, {mutate(v)});
  EXPECT_FALSE(engine.wait_for({read(v)}, 20ms));
  EXPECT_FALSE(engine.wait_all_for(20ms));
  gate.open();
  EXPECT_TRUE(engine.wait_for({read(v)}, patience));
  EXPECT_TRUE(engine.wait_all_for(patience));
}

TEST_P(EngineTest, ThreadsMayPushOverlappingVariablesInOppositeOrders) {
  Engine engine(options());
  std::vector<Var> vars;
  for (int i = 0; i < 4; ++i) vars.push_back(engine.new_var());
  int counter = 0;
  constexpr int threads = 8, pushes = 300;
  {
    std::vector<std::jthread> pushers;
    for (int t = 0; t < threads; ++t) {
      pushers.emplace_back([&, t] {
        for (int i = 0; i < pushes; ++i) {
          const bool forth = (t + i) % 2 == 0;
          engine.push([&] { ++counter; }, {mutate(vars[forth ? 0 : 3]), mutate(vars[forth ? 3 : 0]),
                                           mutate(vars[forth ? 1 : 2]), mutate(vars[forth ? 2 : 1])});
        }
      });
    }
  }
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(counter, threads * pushes);
}

TEST_P(EngineTest, WaitAllTellsAlsoWhileOthersPush) {
  Engine engine(options());
  const Var mine = engine.new_var(), others = engine.new_var();
  std::jthread other([&](std::stop_token stop) {
    while (!stop.stop_requested()) {
      engine.push([] {}, {mutate(others)});
      engine.wait(others);
    }
  });
  for (int i = 0; i < 300; ++i) {
    engine.push([] { throw std::runtime_error("no"); }, {mutate(mine)});
    EXPECT_THROW(engine.wait_all(), OpError);
    engine.heal(mine);
  }
}

TEST_P(EngineTest, APatienceWithoutEndIsNone) {
  Engine engine(options());
  const Var v = engine.new_var();
  engine.push([] { std::this_thread::sleep_for(1ms); }, {mutate(v)});
  EXPECT_TRUE(engine.wait_for({read(v)}, std::chrono::nanoseconds::max()));
  EXPECT_TRUE(engine.wait_all_for(std::chrono::nanoseconds::max()));
}

TEST_P(EngineTest, StatsCountWhatHappened) {
  Engine engine(options());
  const Var v = engine.new_var();
  for (int i = 0; i < 3; ++i) engine.push([] {}, {mutate(v)});
  engine.push([] { throw std::runtime_error("no"); }, {mutate(v)});
  engine.push([] {}, {read(v)});
  EXPECT_THROW(engine.wait_all(), OpError);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.pushed, 5u);
  EXPECT_EQ(stats.pending, 0u);
  EXPECT_EQ(stats.failed, 1u);
  EXPECT_EQ(stats.skipped, 1u);
  EXPECT_EQ(stats.waits, 1u);
}

TEST_P(EngineTest, AnOpMayTouchAThousandVariablesAndCarryMuch) {
  Engine engine(options());
  std::vector<Access> all;
  for (int i = 0; i < 1000; ++i) all.push_back(i % 3 == 0 ? read(engine.new_var()) : mutate(engine.new_var()));
  std::array<int, 500> carried{};
  carried.back() = 7;
  int sum = 0;
  for (int i = 0; i < 10; ++i) engine.push([carried, &sum] { sum += carried.back(); }, all);
  engine.wait_all();
  EXPECT_EQ(sum, 70);
}

TEST(BackPressureTest, AThreadThatRunsAheadIsHeldBack) {
  constexpr std::uint64_t most = 512;
  Engine engine({.policy = Policy::pool, .workers = 1, .max_pending_ops = most});
  const Var v = engine.new_var();
  std::uint64_t worst = 0;
  for (int i = 0; i < 20'000; ++i) {
    engine.push([] { std::this_thread::sleep_for(std::chrono::microseconds(1)); }, {mutate(v)});
    if (i % 64 == 0) worst = std::max(worst, engine.stats().pending);
  }
  EXPECT_LT(worst, 8 * most);  // about 1.5 times as many, if the machine lets ops finish all the time
  engine.wait_all();
}

TEST(BackPressureTest, ItIsLetGoWhenNothingFinishes) {
  Engine engine({.policy = Policy::pool, .workers = 1, .max_pending_ops = 100, .push_patience = 20ms});
  const Var v = engine.new_var();
  Gate gate;
  engine.push([&] { EXPECT_TRUE(gate.pass()); }, {mutate(v)});
  int count = 0;
  for (int i = 0; i < 1000; ++i) engine.push([&] { ++count; }, {mutate(v)});
  gate.open();  // which this thread would never reach
  engine.wait_all();
  EXPECT_EQ(count, 1000);
}

TEST(BackPressureTest, ItHoldsWhileLongOpsRun) {
  // Longer than a thread is held back where nothing runs.
  Engine engine({.policy = Policy::pool, .workers = 1, .max_pending_ops = 8});
  std::uint64_t worst = 0;
  for (int i = 0; i < 24; ++i) {
    engine.push([] { std::this_thread::sleep_for(50ms); }, {});
    worst = std::max(worst, engine.stats().pending);
  }
  EXPECT_LE(worst, 11u);
  engine.wait_all();
}

/// Tokens of ops that have not been completed. Any thread.
class Tokens {
 public:
  AsyncFunction taker() {
    return [this](OnComplete done) {
      std::lock_guard lock(mutex_);
      tokens_.push_back(std::move(done));
    };
  }
  std::optional<OnComplete> next() {
    std::lock_guard lock(mutex_);
    std::optional<OnComplete> done;
    if (tokens_.empty()) return done;
    done.emplace(std::move(tokens_.front()));
    tokens_.pop_front();
    return done;
  }

 private:
  std::mutex mutex_;
  std::deque<OnComplete> tokens_;
};

TEST(BackPressureTest, ItHoldsWhileOthersCompleteOps) {
  Tokens tokens;
  Engine engine({.policy = Policy::pool, .workers = 1, .max_pending_ops = 8});
  const std::jthread device([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(50ms);
      if (auto done = tokens.next()) (*done)();
    }
  });
  std::uint64_t worst = 0;
  for (int i = 0; i < 24; ++i) {
    engine.push_async(tokens.taker(), {});
    worst = std::max(worst, engine.stats().pending);
  }
  EXPECT_LE(worst, 11u);
  engine.wait_all();
}

TEST(BackPressureTest, WhoCompletesOpsItselfIsLetGoSoon) {
  Tokens tokens;
  Engine engine({.policy = Policy::pool, .workers = 1, .max_pending_ops = 8, .push_patience = patience});
  for (const int round : {1, 50}) {
    for (int i = 0; i < round; ++i) engine.push_async(tokens.taker(), {});
    for (int i = 0; i < round;) {
      if (auto done = tokens.next()) (*done)(), ++i;
    }
  }
  EXPECT_TRUE(engine.wait_all_for(patience));
}

TEST(BackPressureTest, RetiresAreHeldBackAndStarveNobody) {
  constexpr std::uint64_t most = 100;
  Engine engine({.policy = Policy::pool, .workers = 1, .max_pending_ops = most});
  const Var v = engine.new_var();
  std::jthread retirer([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) engine.retire(engine.new_var());
  });
  // A thread that is stopped while it adds up counters sees too many pending ops. So this counts those that had been
  // pushed at one look and had not finished at the next.
  EngineStats last;
  std::int64_t worst = 0;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (int i = 0; i < 5000; ++i) {
    engine.push([] {}, {mutate(v)});
    const EngineStats now = engine.stats();
    worst = std::max(worst, static_cast<std::int64_t>(last.pushed - (now.pushed - now.pending)));
    last = now;
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "after " << i << " pushes";
  }
  EXPECT_LT(worst, std::int64_t{4 * most});
}

TEST(BackPressureTest, OpsAreNotHeldBack) {
  Engine engine({.policy = Policy::pool, .workers = 1, .max_pending_ops = 10});
  int count = 0;
  const Var v = engine.new_var();
  engine.push(
      [&] {
        for (int i = 0; i < 2000; ++i) engine.push([&] { ++count; }, {mutate(v)});
      },
      {});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(count, 2000);
}

}  // namespace
}  // namespace windrow::testing
