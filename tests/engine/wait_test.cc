// Waiting inside ops: it works where it can end, and says why where it cannot.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "support.h"

namespace windrow::testing {
namespace {

class WaitTest : public EveryPolicy {};
WINDROW_EVERY_POLICY(WaitTest);

TEST_P(WaitTest, AnOpMayWaitForWhatItPushed) {
  Engine engine(options());
  const Var v = engine.new_var();
  int result = 0;
  engine.push(
      [&] {
        const Var inner = engine.new_var();
        int value = 0;
        for (int i = 0; i < 10; ++i) engine.push([&] { ++value; }, {mutate(inner)});
        engine.wait(inner);
        result = value;
        engine.retire(inner);
      },
      {mutate(v)});
  ASSERT_TRUE(engine.wait_for({read(v)}, patience));
  EXPECT_EQ(result, 10);
  EXPECT_GE(engine.stats().waits_in_ops, 1u);
}

TEST_P(WaitTest, AWaitToReadIsForWritersAndOneToWriteForReadersToo) {
  Engine engine(options());
  const Var v = engine.new_var();
  std::vector<OnComplete> tokens;
  Gate reads;
  engine.push_async([&](OnComplete done) { tokens.push_back(std::move(done)), reads.open(); }, {read(v)});
  ASSERT_TRUE(reads.pass());
  engine.wait(v);
  EXPECT_FALSE(engine.wait_for({mutate(v)}, 1ms));
  tokens.clear();
  EXPECT_TRUE(engine.wait_for({mutate(v)}, patience));
  EXPECT_THROW(engine.wait_all(), OpError);  // the token was dropped
}

TEST_P(WaitTest, WaitsNestDeeperThanThereAreWorkers) {
  Engine engine(options());
  const Var v = engine.new_var();
  int depth = 0;
  std::function<void(int)> descend = [&](int left) {
    ++depth;
    if (left == 0) return;
    const Var inner = engine.new_var();
    engine.push([&, left] { descend(left - 1); }, {mutate(inner)});
    engine.wait(inner);
    engine.retire(inner);
  };
  engine.push([&] { descend(30); }, {mutate(v)});
  ASSERT_TRUE(engine.wait_for({read(v)}, patience));
  EXPECT_EQ(depth, 31);
}

TEST_P(WaitTest, ManyOpsMayWaitAtOnce) {
  Engine engine(options());
  std::atomic<int> sum{0};
  for (int i = 0; i < 20; ++i) {
    engine.push(
        [&] {
          const Var inner = engine.new_var();
          engine.push([&] { ++sum; }, {mutate(inner)});
          engine.wait(inner);
          ++sum;
          engine.retire(inner);
        },
        {});
  }
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(sum, 40);
}

/// A look is shorter than it takes a thread to wake. How many there are is bounded all the same, since a slot that is
/// left goes to an op that is ready.
TEST_P(WaitTest, AnOpThatPollsLetsOthersIn) {
  Engine engine(options());
  const Var v = engine.new_var();
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
      {mutate(v)});
  ASSERT_TRUE(engine.wait_for({read(v)}, patience));
  EXPECT_LE(most_looks, 100u);
}

TEST_P(WaitTest, AWaitInsideThrowsThePoisonItFinds) {
  Engine engine(options());
  const Var v = engine.new_var();
  engine.push(
      [&] {
        const Var inner = engine.new_var();
        engine.push([] { throw std::runtime_error("inner"); }, {mutate(inner)});
        engine.wait(inner);
      },
      {mutate(v)}, {.name = "outer"});
  const std::string text = error_of<OpError>([&] { engine.wait(v); });
  EXPECT_NE(text.find("op 'outer'"), std::string::npos) << text;
  EXPECT_NE(text.find("inner"), std::string::npos) << text;
}

TEST_P(WaitTest, WaitingForAVariableTheOpMutatesIsARing) {
  Engine engine(options());
  const Var v = engine.new_var("v");
  engine.push([&] { engine.wait(v); }, {mutate(v)}, {.name = "self"});
  const std::string text = error_of<OpError>([&] { engine.wait(v); });
  EXPECT_NE(text.find("a wait that cannot end: op 'self'"), std::string::npos) << text;
  engine.heal(v);
  ASSERT_TRUE(engine.wait_all_for(patience));
}

TEST_P(WaitTest, WaitingForAnOpBehindOneselfIsARing) {
  Engine engine(options());
  const Var a = engine.new_var("a"), b = engine.new_var("b");
  engine.push(
      [&] {
        engine.push([] {}, {read(a), mutate(b)}, {.name = "behind"});
        EXPECT_THROW(engine.wait(b), WaitCycleError);
      },
      {mutate(a)}, {.name = "first"});
  ASSERT_TRUE(engine.wait_all_for(patience));
}

TEST_P(WaitTest, AReaderMayWaitForItsOwnVariableAsReader) {
  Engine engine(options());
  const Var v = engine.new_var();
  bool passed = false;
  engine.push([&] { engine.wait(v), passed = true; }, {read(v)});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_TRUE(passed);
}

TEST_P(WaitTest, ARingOfThreeOpsThroughReadsIsFound) {
  Engine engine(options());
  const Var a = engine.new_var("a"), b = engine.new_var("b"), c = engine.new_var("c");
  engine.push(
      [&] {
        engine.push([] {}, {read(a), mutate(b)}, {.name = "second"});
        engine.push([] {}, {read(b), mutate(c)}, {.name = "third"});
        const std::string text = error_of<WaitCycleError>([&] { engine.wait(c); });
        for (const char* name : {"first", "second", "third"}) EXPECT_NE(text.find(name), std::string::npos) << text;
      },
      {mutate(a)}, {.name = "first"});
  ASSERT_TRUE(engine.wait_all_for(patience));
}

TEST_P(WaitTest, AWaitWithALimitRunsIntoItAndClosesNoRing) {
  Engine engine(options());
  const Var v = engine.new_var();
  bool in_time = true;
  engine.push([&] { in_time = engine.wait_for({read(v)}, 10ms); }, {mutate(v)});
  engine.wait_all();
  EXPECT_FALSE(in_time);
  EXPECT_EQ(engine.stats().pending, 0u);
}

TEST_P(WaitTest, AWaitBehindManyOpsIsFoundOut) {
  Engine engine(options());
  const Var a = engine.new_var(), b = engine.new_var();
  engine.push(
      [&] {
        for (int i = 0; i < 20000; ++i) engine.push([] {}, {mutate(a), mutate(b)});
        EXPECT_THROW(engine.wait(b), WaitCycleError);
      },
      {mutate(a)});
  ASSERT_TRUE(engine.wait_all_for(patience));
}

TEST_P(WaitTest, CapturesThatWaitForTheirOwnOpAreARing) {
  Engine engine(options());
  const Var v = engine.new_var();
  std::atomic<int> rings{0};
  struct Owner {
    Engine* engine;
    Var var;
    std::atomic<int>* rings;
    ~Owner() {
      try {
        engine->wait(var);
      } catch (const WaitCycleError&) {
        ++*rings;
      }
    }
  };
  std::jthread completer;
  engine.push([owner = std::make_unique<Owner>(&engine, v, &rings)] {}, {mutate(v)});
  engine.push_async([&completer, owner = std::make_unique<Owner>(&engine, v, &rings)](
                        OnComplete done) { completer = std::jthread([done = std::move(done)]() mutable { done(); }); },
                    {mutate(v)});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(rings, 2);
}

/// Waits inside an op; false if that came to its end.
bool closes_ring(Engine& engine, Var var) {
  try {
    engine.wait(var);
  } catch (const WaitCycleError&) {
    return true;
  }
  return false;
}

TEST(WaitRingTest, ARingThroughTwoEnginesIsFound) {
  Engine one({.policy = Policy::pool, .workers = 1}), two({.policy = Policy::pool, .workers = 1});
  const Var a = one.new_var(), b = two.new_var();
  Gate first_runs, second_runs;
  std::atomic<int> rings{0};
  const auto body = [&](Gate& mine, Gate& other, Engine& engine, Var wanted) {
    mine.open();
    EXPECT_TRUE(other.pass());
    rings += closes_ring(engine, wanted);
  };
  one.push([&] { body(first_runs, second_runs, two, b); }, {mutate(a)});
  two.push([&] { body(second_runs, first_runs, one, a); }, {mutate(b)});
  ASSERT_TRUE(one.wait_all_for(patience));
  ASSERT_TRUE(two.wait_all_for(patience));
  EXPECT_GE(rings, 1);
}

TEST(WaitRingTest, ARingThroughAnOpInsideWhichAnotherEngineWaitsIsFound) {
  Engine engine({.policy = Policy::pool, .workers = 2}), serial({.policy = Policy::serial});
  const Var a = engine.new_var(), b = engine.new_var();
  Gate first_runs, second_runs;
  std::atomic<int> rings{0};
  const auto wait = [&](Var var) { rings += closes_ring(engine, var); };
  engine.push([&] { first_runs.open(), second_runs.pass(), serial.push([&] { wait(b); }, {}); }, {mutate(a)});
  // It mostly comes later, so that it is the one to see the ring.
  engine.push([&] { second_runs.open(), first_runs.pass(), std::this_thread::sleep_for(20ms), wait(a); }, {mutate(b)});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_GE(rings, 1);
}

TEST(WaitRingTest, AnExclusiveWaitBetweenReadersHidesNoRing) {
  Engine engine({.policy = Policy::pool, .workers = 2});
  const Var v = engine.new_var(), w = engine.new_var();
  Gate reader_runs, writer_runs;
  std::atomic<int> rings{0};
  const auto wait = [&](Var var) { rings += closes_ring(engine, var); };
  engine.push([&] { reader_runs.open(), writer_runs.pass(), std::this_thread::sleep_for(20ms), wait(w); }, {read(v)});
  EXPECT_TRUE(reader_runs.pass());
  std::jthread outside([&] { engine.wait({mutate(v)}); });
  std::this_thread::sleep_for(10ms);
  engine.push([&] { writer_runs.open(), wait(v); }, {mutate(w)});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_GE(rings, 1);
}

TEST(WaitRingTest, AWaitForTwoVariablesStandsBeforeWhatIsPushedLater) {
  Engine engine({.policy = Policy::pool, .workers = 2});
  const Var a = engine.new_var(), b = engine.new_var(), x = engine.new_var();
  Gate waits, later_pushed;
  engine.push([&] { EXPECT_TRUE(later_pushed.pass()); }, {mutate(a)});
  bool passed = false;
  engine.push([&] { waits.open(), engine.wait({read(a), read(b)}), passed = true; }, {mutate(x)});
  EXPECT_TRUE(waits.pass());
  std::this_thread::sleep_for(10ms);
  engine.push([] {}, {read(x), mutate(b)});
  later_pushed.open();
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_TRUE(passed);
}

TEST(WaitRingTest, EnginesMayEndWhileOthersLookForRings) {
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
  EXPECT_TRUE(go.pass());
  for (int i = 0; i < 20; ++i) engine.push([&] { engine.wait(y); }, {});
  engine.wait_all();  // without a limit, which would hide that nobody told it of the last op
}

TEST(WaitRingTest, AWaitThatWasGivenUpHoldsNothing) {
  Engine engine({.policy = Policy::pool, .workers = 2});
  const Var a = engine.new_var(), b = engine.new_var();
  Gate gate;
  engine.push([&] { EXPECT_TRUE(gate.pass()); }, {mutate(a)});
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(engine.wait_for({read(b), read(a)}, 1us));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(engine.wait_for({mutate(a)}, 1us));
  EXPECT_EQ(engine.stats().pending, 1u);
  bool ran = false;
  engine.push([&] { ran = true; }, {mutate(b)});
  engine.wait(b);
  EXPECT_TRUE(ran);
  gate.open();
  engine.wait_all();
}

TEST(WaitRingTest, TwoOpsThatWaitForEachOtherAreARing) {
  Engine engine({.policy = Policy::pool, .workers = 2});
  const Var a = engine.new_var("a"), b = engine.new_var("b");
  Gate first_runs, second_runs;
  std::atomic<int> rings{0};
  const auto body = [&](Gate& mine, Gate& other, Var wanted) {
    mine.open();
    EXPECT_TRUE(other.pass());
    try {
      engine.wait(wanted);
    } catch (const WaitCycleError& e) {
      EXPECT_NE(std::string(e.what()).find("which waits for"), std::string::npos);
      ++rings;
    }
  };
  engine.push([&] { body(first_runs, second_runs, b); }, {mutate(a)}, {.name = "one"});
  engine.push([&] { body(second_runs, first_runs, a); }, {mutate(b)}, {.name = "two"});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_GE(rings, 1);
}

TEST_P(WaitTest, AnOpMayWaitOnAnotherEngine) {
  Engine engine(options()), other(options());
  const Var v = engine.new_var(), w = other.new_var();
  int value = 0;
  engine.push(
      [&] {
        for (int i = 0; i < 10; ++i) other.push([&] { ++value; }, {mutate(w)});
        other.wait_all();
      },
      {mutate(v)});
  ASSERT_TRUE(engine.wait_for({read(v)}, patience));
  EXPECT_EQ(value, 10);
}

}  // namespace
}  // namespace windrow::testing
