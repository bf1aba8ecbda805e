// Back-pressure by ops and by bytes: EngineOptions::max_pending_ops and max_pending_bytes, PushOptions::bytes.
#include <deque>

#include "support.h"

namespace windrow::testing {
namespace {

class BytesTest : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(BytesTest);

TEST_P(BytesTest, CountUntilTheOpHasFinished) {
  std::uint64_t in_first = 0, in_second = 0;
  engine.push([&] { in_first = engine.stats().pending_bytes; }, {mutate(a)}, {.bytes = 100});
  engine.wait(a);
  EXPECT_EQ(engine.stats().pending_bytes, 0u);
  engine.push([] {}, {mutate(a)}, {.bytes = 100});
  engine.push([&] { in_second = engine.stats().pending_bytes; }, {mutate(a)});
  engine.wait(a);
  EXPECT_EQ(in_first, 100u);
  EXPECT_EQ(in_second, 0u);
  engine.push([] { throw std::runtime_error("boom"); }, {mutate(b)}, {.bytes = 100});
  engine.push([] {}, {mutate(b)}, {.bytes = 100});  // skipped
  EXPECT_THROW(engine.wait(b), OpError);
  EXPECT_EQ(engine.stats().pending_bytes, 0u);
  HeldOp held(engine, {mutate(a)}, PushOptions{.bytes = 10});
  EXPECT_EQ(engine.stats().pending_bytes, 10u);
  held.complete();
  engine.wait(a);
  EXPECT_EQ(engine.stats().pending_bytes, 0u);
  engine.retire(a);
  EXPECT_THROW(engine.push([] {}, {mutate(a)}, {.bytes = 100}), MisuseError);
  EXPECT_EQ(engine.stats().pending_bytes, 0u);
}

TEST_P(BytesTest, OfDeclaredOpsCountForEachPush) {
  std::uint64_t pending = 0;
  int ran = 0;
  const DeclaredOp op = engine.declare([&] { ++ran; }, {mutate(a)}, {.bytes = 100});
  EXPECT_EQ(engine.stats().pending_bytes, 0u);
  engine.push(
      [&] {
        for (int i = 0; i < 3; ++i) engine.push(op);
        pending = engine.stats().pending_bytes;
      },
      {mutate(a)});
  engine.wait_all();
  EXPECT_EQ(pending, 300u);
  EXPECT_EQ(ran, 3);
  EXPECT_EQ(engine.stats().pending_bytes, 0u);
}

/// One of the two limits, so low that it holds back after this many ops, which have bytes.
struct Limited {
  bool by_ops;
  std::uint64_t ops;
  static constexpr std::uint64_t bytes = 100;

  EngineOptions operator()(EngineOptions options) const {
    (by_ops ? options.max_pending_ops : options.max_pending_bytes) = by_ops ? ops : ops * bytes;
    return options;
  }
};

TEST_P(BytesTest, LimitsKeepWhoPushesFromRunningAhead) {
  for (const bool by_ops : {true, false}) {
    // Pushing is far quicker than these ops. One push is let through where none of them gets a core for long, so the
    // bound has room for a hundred times that.
    const Limited limited{by_ops, 100};
    Engine held_back(limited(options()));
    const Var v = held_back.new_var();
    std::uint64_t most = 0;
    volatile int work = 0;
    const auto op = [&] {
      for (int j = 0; j < 10000; ++j) work = j;
    };
    for (int i = 0; i < 3000; ++i) {
      held_back.push(op, {mutate(v)}, {.bytes = Limited::bytes});
      const EngineStats now = held_back.stats();
      most = std::max(most, by_ops ? now.pending : now.pending_bytes / Limited::bytes);
    }
    held_back.wait_all();
    EXPECT_LE(most, (by_ops ? 8 : 2) * limited.ops) << by_ops;
  }
}

TEST_P(BytesTest, LimitsNeverHoldBackOps) {
  // Each of these pushes would wait in vain for a while, and all of them for longer than the patience.
  constexpr int pushes = 10000;
  for (const bool by_ops : {true, false}) {
    Engine held_back(Limited{by_ops, 1}(options()));
    const Var v = held_back.new_var();
    std::atomic<int> ran{0};
    const auto op = [&] {
      for (int i = 0; i < pushes; ++i) held_back.push([&] { ++ran; }, {mutate(v)}, {.bytes = Limited::bytes});
    };
    held_back.push(op, {mutate(v)});
    ASSERT_TRUE(held_back.wait_all_for(patience)) << by_ops;
    EXPECT_EQ(ran, pushes);
  }
}

class ThreadedBytesTest : public EveryPolicy {};
WINDROW_THREADED_POLICIES(ThreadedBytesTest);

TEST_P(ThreadedBytesTest, LimitsDoNotHoldBackForEverWhoTheOpsWaitFor) {
  for (const bool by_ops : {true, false}) {
    EngineOptions hasty = Limited{by_ops, 2}(options());
    hasty.push_patience = 20ms;
    Engine engine(hasty);
    const Var a = engine.new_var();
    int ran = 0;
    StuckOp stuck(engine, {mutate(a)});
    for (int i = 0; i < 10; ++i) engine.push([&] { ++ran; }, {mutate(a)}, {.bytes = Limited::bytes});
    stuck.let_go();  // which this thread would never reach
    ASSERT_TRUE(engine.wait_all_for(patience));
    EXPECT_EQ(ran, 10);
  }
}

TEST_P(ThreadedBytesTest, AnOpLargerThanTheLimitGoesAlone) {
  Engine engine(Limited{false, 1}(options()));
  const Var a = engine.new_var();
  int ran = 0;
  for (int i = 0; i < 50; ++i) engine.push([&] { ++ran; }, {mutate(a)}, {.bytes = 10 * Limited::bytes});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(ran, 50);
}

TEST_P(ThreadedBytesTest, ALargePushIsNotPassedBySmallOnesForEver) {
  for (const std::uint64_t large : {900, 2000}) {
    Engine engine(Limited{false, 10}(options()));
    std::atomic<bool> pushes{true}, passed{false};
    std::atomic<int> after{0};  // small pushes since the large one began
    on_threads(3, [&](int t) {
      while (t > 0 && pushes) {
        engine.push([] { std::this_thread::sleep_for(200us); }, {}, {.bytes = 100});
        if (!passed) ++after;
      }
      if (t > 0) return;
      while (engine.stats().pushed < 50) std::this_thread::yield();
      after = 0;
      engine.push([] {}, {}, {.bytes = large});
      passed = true;
      pushes = false;
    });
    EXPECT_LE(after, 100) << large;
    ASSERT_TRUE(engine.wait_all_for(patience));
  }
}

TEST(BackPressureTest, ItHoldsWhileLongOpsRunOrOthersCompleteOps) {
  for (const bool async : {false, true}) {
    // Longer than a thread is held back where nothing runs.
    Tokens tokens;
    Engine engine({.policy = Policy::pool, .workers = 1, .max_pending_ops = 8});
    const std::jthread device([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        std::this_thread::sleep_for(50ms);
        tokens.complete_one();
      }
    });
    std::uint64_t worst = 0;
    for (int i = 0; i < 24; ++i) {
      async ? engine.push_async(tokens.taker(), {}) : engine.push([] { std::this_thread::sleep_for(50ms); }, {});
      worst = std::max(worst, engine.stats().pending);
    }
    EXPECT_LE(worst, 11u) << async;
    engine.wait_all();
  }
}

TEST(BackPressureTest, WhoCompletesOpsItselfIsLetGoSoon) {
  Tokens tokens;
  Engine engine({.policy = Policy::pool, .workers = 1, .max_pending_ops = 8, .push_patience = patience});
  for (const int round : {1, 50}) {
    for (int i = 0; i < round; ++i) engine.push_async(tokens.taker(), {});
    for (int i = 0; i < round;) i += tokens.complete_one();
  }
  EXPECT_TRUE(engine.wait_all_for(patience));
}

TEST(BackPressureTest, AHeldThreadGivesUpTheLockThatOpsNeed) {
  // As an interpreter's threads do: this thread pushes with the lock, which each op takes.
  std::mutex lock;
  int held = 0, ran = 0;
  const auto give_up = [&]() -> std::shared_ptr<void> {
    ++held;
    lock.unlock();
    return {nullptr, [&](std::nullptr_t) { lock.lock(); }};
  };
  Engine engine({.policy = Policy::pool,
                 .workers = 1,
                 .max_pending_ops = 8,
                 .max_pending_bytes = 1000,
                 .push_patience = patience,
                 .on_held = give_up});
  for (const std::uint64_t bytes : {0, 300}) {
    const int before = held;
    std::unique_lock with_lock(lock);
    for (int i = 0; i < 100; ++i) {
      engine.push(
          [&] {
            const std::lock_guard in_op(lock);
            ++ran;
          },
          {}, {.bytes = bytes});
    }
    with_lock.unlock();
    engine.wait_all();
    EXPECT_GT(held, before) << bytes;
  }
  EXPECT_EQ(ran, 200);
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

}  // namespace
}  // namespace windrow::testing
