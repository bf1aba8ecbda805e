// Ops that commute: each alone, in any order, as one among all others.
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support.h"
#include "windrow/engine/graph.h"

namespace windrow {
namespace {

using namespace testing;

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

TEST_P(Commute, TheVariableMayEnd) {
  for (int i = 0; i < 50; ++i) {
    const Var v = engine.new_var("v");
    int count = 0;
    engine.push([&] { ++count; }, {read(v)});
    engine.push([&] { ++count; }, {commute(v)});
    engine.retire(v, [&] { ++count; });
    engine.wait_all();
    ASSERT_EQ(count, 3);
  }
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

}  // namespace
}  // namespace windrow
