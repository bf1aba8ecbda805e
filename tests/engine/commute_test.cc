// Ops that commute: each alone, in any order, as one among all others.
#include <cmath>
#include <stdexcept>

#include "support.h"
#include "windrow/engine/graph.h"
#include "windrow/engine/reduction.h"

namespace windrow::testing {
namespace {

class Commute : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(Commute);

TEST_P(Commute, EachRunsAlone) {
  Crowd crowd_a, crowd_b;
  int in_a = 0, in_b = 0;
  const DeclaredOp declared = engine.declare([&] { crowd_b.pass(), ++in_b; }, {commute(b)});
  for (int i = 0; i < 750; ++i) {
    engine.push([&] { crowd_a.pass(), ++in_a; }, {commute(a)});
    engine.push(declared);
    engine.push([&] { crowd_a.pass(), crowd_b.pass(), ++in_a, ++in_b; }, {commute(b), commute(a)});
    engine.push_async([&](OnComplete done) { crowd_a.pass(), ++in_a, done(); }, {commute(a)});
  }
  engine.wait_all();
  EXPECT_EQ(crowd_a.most(), 1);
  EXPECT_EQ(crowd_b.most(), 1);
  EXPECT_EQ(in_a, 2250);
  EXPECT_EQ(in_b, 1500);
  EXPECT_EQ(engine.version(a), 2250u);
}

TEST_P(Commute, AWaitComesAfterAll) {
  int value = 0;
  for (int i = 0; i < 100; ++i) {
    engine.push([&] { ++value; }, {commute(a)});
    engine.push([&] { ++value; }, {commute(a)});
    engine.wait(a);
    ASSERT_EQ(value, 2 * (i + 1));
  }
}

TEST_P(Commute, AFailurePoisonsWhatCommutesBehindItAndWhatReads) {
  engine.push([] { throw std::runtime_error("broken"); }, {commute(a)}, {.name = "bad"});
  EXPECT_THROW(engine.wait(a), OpError);
  bool ran = false;
  engine.push([&] { ran = true; }, {commute(a)});
  EXPECT_THROW(engine.wait(a), OpError);
  EXPECT_FALSE(ran);
  engine.heal(a);
  engine.push([&] { ran = true; }, {commute(a)});
  engine.wait(a);
  EXPECT_TRUE(ran);
  EXPECT_EQ(engine.stats().failed, 1u);
  EXPECT_EQ(engine.stats().skipped, 1u);
  EXPECT_EQ(engine.failures(), 2u);
}

TEST_P(Commute, ComesAfterTheReadsOfAGraphThatWroteBefore) {
  int value = 0, wrong = 0;
  const Graph graph = engine.capture([&] {
    engine.push([&] { value = 1000; }, {mutate(a)});
    engine.push([&] { wrong += value != 1000; }, {read(a)});
  });
  for (int i = 0; i < 300; ++i) {
    graph.launch();
    engine.push([&] { ++value; }, {commute(a)});
    engine.push([&] { ++value; }, {commute(a)});
  }
  engine.wait_all();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(value, 1002);
}

TEST_P(Commute, OpsOfAGraphKeepTheirOrder) {
  std::vector<int> order;
  const Graph graph = engine.capture([&] {
    for (int i = 0; i < 10; ++i) engine.push([&, i] { order.push_back(i); }, {commute(a)});
  });
  graph.launch();
  engine.wait(a);
  EXPECT_EQ(order, (std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(CommuteOrder, OneThatIsReadyDoesNotWaitForOneThatIsNot) {
  Engine engine({.policy = Policy::pool, .workers = 1});
  const Var late = engine.new_var("late"), sum = engine.new_var("sum");
  std::vector<int> order;
  HeldOp held(engine, {mutate(late)});
  engine.push([&] { order.push_back(1); }, {read(late), commute(sum)});
  engine.push([&] { order.push_back(2), held.complete(); }, {commute(sum)});
  engine.wait_all();
  EXPECT_EQ(order, (std::vector{2, 1}));
}

TEST(CommuteOrder, ThoseThatNeedSeveralTurnsAndWaitInRingsEnd) {
  Engine engine({.policy = Policy::pool, .workers = 8});
  std::vector<Var> vars;
  for (int i = 0; i < 5; ++i) vars.push_back(engine.new_var());
  std::vector<int> counts(5);
  for (std::size_t i = 0; i < 20'000; ++i) {
    const std::size_t a = i % 5, b = (i + 1 + i / 7 % 4) % 5;
    engine.push([&counts, a, b] { ++counts[a], ++counts[b]; }, {commute(vars[a]), commute(vars[b])});
  }
  engine.wait_all();
  int sum = 0;
  for (const int count : counts) sum += count;
  EXPECT_EQ(sum, 40'000);
}

// Many ops add to one value.

class ReductionTest : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(ReductionTest);

TEST_P(ReductionTest, ReadersSeeAllThatWasAddedBeforeAndNothingElse) {
  Reduction<long> sum(engine, 0);
  std::vector<long> seen(100);
  long added = 0;
  std::vector<long> expected;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    for (std::size_t k = 0; k <= i % 20; ++k) {
      sum.add([k](long& part) { part += static_cast<long>(k); });
      added += static_cast<long>(k);
    }
    engine.push([&, i] { seen[i] = sum.value(); }, {sum.read()});
    expected.push_back(added);
  }
  engine.wait_all();
  EXPECT_EQ(seen, expected);
}

TEST_P(ReductionTest, OpsMayChangeTheValueInBetween) {
  Reduction<int> sum(engine, 0);
  for (int i = 0; i < 10; ++i) {
    sum.add([](int& part) { part += 3; });
    engine.push([&] { sum.value() *= 2; }, {sum.mutate()});
  }
  engine.wait({sum.read()});
  int expected = 0;
  for (int i = 0; i < 10; ++i) expected = 2 * (expected + 3);
  EXPECT_EQ(sum.value(), expected);
}

TEST_P(ReductionTest, AFailedAddPoisonsTheValueUntilItIsReset) {
  Reduction<int> sum(engine, 0);
  sum.add([](int& part) { part = 1; });
  sum.add([](int&) { throw std::runtime_error("no"); }, {}, {.name = "bad add"});
  expect_error<OpError>([&] { engine.wait({sum.read()}); }, "bad add");
  sum.reset(40);
  sum.add([](int& part) { part += 2; });
  engine.wait({sum.read()});
  EXPECT_EQ(sum.value(), 42);
}

TEST_P(ReductionTest, AddsRunAfterItsEnd) {
  std::atomic<int> ran{0};
  {
    Reduction<int> sum(engine, 0);
    for (int i = 0; i < 20; ++i) sum.add([&](int& part) { part += 1, ++ran; });
  }
  engine.wait_all();
  EXPECT_EQ(ran, 20);
}

using Reductions = PoolOf<2>;

TEST_F(Reductions, HaveTheSameBitsForAnyNumberOfWorkers) {
  const auto sum_with = [](int workers) {
    Engine adds({.policy = Policy::pool, .workers = workers});
    Reduction<double> sum(adds, 0);
    for (int i = 1; i <= 5000; ++i) sum.add([i](double& part) { part += std::sin(i); });
    adds.wait({sum.read()});
    return sum.value();
  };
  const double one = sum_with(1);
  EXPECT_EQ(sum_with(2), one);
  EXPECT_EQ(sum_with(8), one);
}

TEST_F(Reductions, AddSideBySide) {
  Reduction<int> sum(engine, 0);
  Crowd crowd;
  for (int i = 0; i < 2; ++i) sum.add([&](int& part) { crowd.meet(2), ++part; });
  engine.wait({sum.read()});
  EXPECT_EQ(sum.value(), 2);
}

TEST_F(Reductions, CombineAsTheyAreTold) {
  const auto larger = [](int one, int other) { return std::max(one, other); };
  Reduction<int, decltype(larger)> most(engine, 0, larger, {.name = "most", .ways = 3});
  for (const int i : {3, 9, 4, 1, 7}) {
    most.add([i](int& part) { part = std::max(part, i); });
  }
  engine.wait({most.read()});
  EXPECT_EQ(most.value(), 9);
}

TEST_F(Reductions, SeveralThreadsMayAdd) {
  Reduction<int> sum(engine, 0);
  on_threads(4, [&](int) {
    for (int i = 0; i < 500; ++i) sum.add([](int& part) { ++part; });
    engine.wait({sum.read()});
  });
  engine.wait({sum.read()});
  EXPECT_EQ(sum.value(), 2000);
}

}  // namespace
}  // namespace windrow::testing
