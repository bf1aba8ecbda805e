// Waiting inside ops: it works where it can end, and says why where it cannot.

#include "support.h"
#include "windrow/engine/internal/engine_use.h"

namespace windrow::testing {
namespace {

using WaitRingTest = PoolOf<2>;

class WaitTest : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(WaitTest);

TEST_P(WaitTest, AWaitToReadIsForWritersAndOneToWriteForReadersToo) {
  HeldOp reads(engine, {read(a)});
  engine.wait(a);
  EXPECT_FALSE(engine.wait_for({mutate(a)}, 1ms));
  EXPECT_FALSE(engine.wait_all_for(1ms));
  reads.drop();
  EXPECT_TRUE(engine.wait_for({mutate(a)}, patience));
  EXPECT_THROW(engine.wait_all(), OpError);  // the token was dropped
}

/// A look is shorter than it takes a thread to wake. How many there are is bounded all the same, since a slot that is
/// left goes to an op that is ready.
TEST_P(WaitTest, AnOpThatPollsLetsOthersIn) {
  std::uint64_t most_looks = 0;
  engine.push(
      [&] {
        for (int round = 0; round < 20; ++round) {
          const Var inner = engine.new_var();
          std::atomic<bool> begun{false};
          engine.push([&] { begun = true; }, {mutate(inner)});
          std::uint64_t looks = 0;
          for (; !begun; ++looks) engine.wait_for({read(inner)}, 0ns);
          most_looks = std::max(most_looks, looks);
          engine.wait(inner);
          engine.retire(inner);
        }
      },
      {mutate(a)});
  ASSERT_TRUE(engine.wait_for({read(a)}, patience));
  EXPECT_LE(most_looks, 100u);
}

TEST_P(WaitTest, AReaderMayWaitForItsOwnVariableAsReader) {
  bool passed = false;
  engine.push([&] { engine.wait(a), passed = true; }, {read(a)});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_TRUE(passed);
}

TEST_P(WaitTest, AWaitWithALimitRunsIntoItAndClosesNoRing) {
  bool in_time = true;
  engine.push([&] { in_time = engine.wait_for({read(a)}, 10ms); }, {mutate(a)});
  engine.wait_all();
  EXPECT_FALSE(in_time);
  EXPECT_EQ(engine.stats().pending, 0u);
}

/// Thrown to leave a wait.
struct Left {};

TEST_P(WaitTest, AWaitThatLooksElsewhereDoesNotWaitForLaterOps) {
  HeldOp first(engine, {mutate(a)});
  std::vector<OnComplete> tokens;  // of the later op
  std::atomic<bool> runs{false};   // so that there is one
  int looks = 0;
  const LookWhileWaiting looking([&] {
    if (++looks > 1) return;
    engine.push_async([&](OnComplete done) { tokens.push_back(std::move(done)), runs = true; }, {mutate(a)});
    first.complete();
  });
  EXPECT_TRUE(engine.wait_for({read(a)}, patience));
  EXPECT_TRUE(comes_true([&] { return runs.load(); }));
  EXPECT_FALSE(engine.wait_for({read(a)}, 1ms));
  {
    const LookWhileWaiting leaving([] { throw Left(); });
    EXPECT_THROW(engine.wait(a), Left);
    EXPECT_THROW(engine.wait_all(), Left);
    const LookWhileWaiting no_look;
    EXPECT_FALSE(engine.wait_for({read(a)}, 2 * LookWhileWaiting::interval));
  }
  EXPECT_FALSE(EngineUse::wait_until_idle(engine, 1ms));
  tokens.clear();
  EXPECT_TRUE(EngineUse::wait_until_idle(engine, patience));  // reports nothing
  EXPECT_THROW(engine.wait(a), OpError);                      // the token was dropped
}

TEST(LookWhileWaitingTest, EndsAPushThatIsHeldBack) {
  Engine engine({.workers = 1, .max_pending_ops = 4});
  const Var a = engine.new_var();
  HeldOp first(engine, {mutate(a)});
  int pushed = 0, ran = 0;
  const auto push = [&] {
    const LookWhileWaiting leaving([] { throw Left(); });
    while (true) {
      engine.push([&] { ++ran; }, {mutate(a)});
      ++pushed;
    }
  };
  EXPECT_THROW(push(), Left);
  first.complete();
  engine.wait(a);
  EXPECT_EQ(ran, pushed);
}

TEST_P(WaitTest, CapturesThatWaitForTheirOwnOpAreARing) {
  std::atomic<int> rings{0};
  const auto wait = [&] { rings += closes_ring(engine, {read(a)}); };
  std::jthread completer;
  engine.push([owner = std::make_unique<AtEnd>(wait)] {}, {mutate(a)});
  engine.push_async([&completer, owner = std::make_unique<AtEnd>(wait)](
                        OnComplete done) { completer = std::jthread([done = std::move(done)]() mutable { done(); }); },
                    {mutate(a)});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(rings, 2);
}

TEST_F(WaitRingTest, ARingThroughAnOpInsideWhichAnotherEngineWaitsIsFound) {
  Engine serial({.policy = Policy::serial});
  Gate first_runs, second_runs;
  std::atomic<int> rings{0};
  const auto wait = [&](Var var) { rings += closes_ring(engine, {read(var)}); };
  engine.push([&] { first_runs.open(), second_runs.pass(), serial.push([&] { wait(b); }, {}); }, {mutate(a)});
  // It mostly comes later, so that it is the one to see the ring.
  engine.push([&] { second_runs.open(), first_runs.pass(), std::this_thread::sleep_for(20ms), wait(a); }, {mutate(b)});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_GE(rings, 1);
}

TEST_F(WaitRingTest, AnExclusiveWaitBetweenReadersHidesNoRing) {
  Gate reader_runs, writer_runs;
  std::atomic<int> rings{0};
  const auto wait = [&](Var var) { rings += closes_ring(engine, {read(var)}); };
  engine.push([&] { reader_runs.open(), writer_runs.pass(), std::this_thread::sleep_for(20ms), wait(b); }, {read(a)});
  reader_runs.await();
  std::jthread outside([&] { engine.wait({mutate(a)}); });
  std::this_thread::sleep_for(10ms);
  engine.push([&] { writer_runs.open(), wait(a); }, {mutate(b)});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_GE(rings, 1);
}

TEST_F(WaitRingTest, AWaitForTwoVariablesStandsBeforeWhatIsPushedLater) {
  Gate waits;
  StuckOp stuck(engine, {mutate(a)});
  bool passed = false;
  engine.push([&] { waits.open(), engine.wait({read(a), read(b)}), passed = true; }, {mutate(c)});
  waits.await();
  std::this_thread::sleep_for(10ms);
  engine.push([] {}, {read(c), mutate(b)});
  stuck.let_go();
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_TRUE(passed);
}

TEST(WaitRing, EnginesMayEndWhileOthersLookForRings) {
  Engine engine({.policy = Policy::pool, .workers = 3});
  const Var y = engine.new_var();
  Gate go;
  engine.push(
      [&] {
        go.open();
        for (int round = 0; round < 20; ++round) {
          Engine local({.policy = Policy::pool, .workers = 1});
          const Var c = local.new_var();
          for (int i = 0; i < 200; ++i) local.push([] {}, {mutate(c), mutate(local.new_var())});
          local.wait(c);
        }
      },
      {mutate(y)});
  go.await();
  for (int i = 0; i < 20; ++i) engine.push([&] { engine.wait(y); }, {});
  engine.wait_all();  // without a limit, which would hide that nobody told it of the last op
}

TEST_F(WaitRingTest, AWaitThatWasGivenUpHoldsNothing) {
  StuckOp stuck(engine, {mutate(a)});
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(engine.wait_for({read(b), read(a)}, 1us));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(engine.wait_for({mutate(a)}, 1us));
  EXPECT_EQ(engine.stats().pending, 1u);
  bool ran = false;
  engine.push([&] { ran = true; }, {mutate(b)});
  engine.wait(b);
  EXPECT_TRUE(ran);
  stuck.let_go();
  engine.wait_all();
}

TEST_F(WaitRingTest, TwoOpsThatWaitForEachOtherAreARing) {
  Gate first_runs, second_runs;
  std::atomic<int> rings{0};
  const auto body = [&](Gate& mine, Gate& other, Var wanted) {
    mine.open();
    other.await();
    rings += closes_ring(engine, {read(wanted)});
  };
  engine.push([&] { body(first_runs, second_runs, b); }, {mutate(a)}, {.name = "one"});
  engine.push([&] { body(second_runs, first_runs, a); }, {mutate(b)}, {.name = "two"});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_GE(rings, 1);
}

TEST_P(WaitTest, AnOpMayWaitOnAnotherEngine) {
  Engine other(options());
  const Var w = other.new_var();
  int value = 0;
  const auto op = [&] {
    for (int i = 0; i < 10; ++i) other.push([&] { ++value; }, {mutate(w)});
    other.wait_all();
  };
  engine.push(op, {mutate(a)});
  ASSERT_TRUE(engine.wait_for({read(a)}, patience));
  EXPECT_EQ(value, 10);
}

TEST(WaitLimitTest, ASerialOpThatLeavesNoThreadWaitsForOthersAllTheSame) {
  Engine engine({.policy = Policy::serial, .max_spare_threads = 0});
  const Var a = engine.new_var(), b = engine.new_var();
  HeldOp first(engine, {mutate(a)}), second(engine, {mutate(b)});
  Gate begun, waited;
  engine.push([&] { begun.open(), engine.wait(b), waited.open(); }, {mutate(a)});
  first.complete();
  begun.await();
  second.complete();
  waited.await();
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
  expect_error<OpError>([&] { engine.wait(v); }, "max_spare_threads = 0");
}

TEST(WaitLimitTest, SpareThreadsAreReused) {
  Engine engine({.policy = Policy::pool, .workers = 1});
  const Var v = engine.new_var();
  const auto op = [&] {
    const Var inner = engine.new_var();
    engine.push([] {}, {mutate(inner)});
    engine.wait(inner);
    engine.retire(inner);
  };
  for (int i = 0; i < 200; ++i) engine.push(op, {mutate(v)});
  engine.wait_all();
  EXPECT_LE(engine.stats().spare_threads, 2u);
}

}  // namespace
}  // namespace windrow::testing
