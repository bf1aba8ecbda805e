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

class Commute : public EveryPolicy {
 protected:
  Engine engine_{options()};
};

/// Counts those inside.
class Room {
 public:
  void pass() {
    alone_ = alone_ && ++inside_ == 1;
    --inside_;
  }
  bool all_were_alone() const { return alone_; }

 private:
  std::atomic<int> inside_{0};
  std::atomic<bool> alone_{true};
};

TEST_P(Commute, EachRunsAlone) {
  const Var a = engine_.new_var("a"), b = engine_.new_var("b");
  Room room_a, room_b;
  int in_a = 0, in_b = 0;
  for (int i = 0; i < 3000; ++i) {
    switch (i % 3) {
      case 0:
        engine_.push([&] { room_a.pass(), ++in_a; }, {commute(a)});
        break;
      case 1:
        engine_.push([&] { room_b.pass(), ++in_b; }, {commute(b)});
        break;
      default:
        engine_.push([&] { room_a.pass(), room_b.pass(), ++in_a, ++in_b; }, {commute(b), commute(a)});
    }
  }
  engine_.wait_all();
  EXPECT_TRUE(room_a.all_were_alone() && room_b.all_were_alone());
  EXPECT_EQ(in_a, 2000);
  EXPECT_EQ(in_b, 2000);
  EXPECT_EQ(engine_.version(a), 2000u);
}

TEST_P(Commute, ReadsAndWritesSeeAllThatCameBeforeAndNothingElse) {
  const Var sum = engine_.new_var("sum");
  int value = 0;
  std::vector<int> seen(300);
  for (int i = 0; i < 300; ++i) {
    for (int k = 0; k < 5; ++k) engine_.push([&] { ++value; }, {commute(sum)});
    engine_.push([&, i] { seen[static_cast<std::size_t>(i)] = value; }, {i % 2 == 0 ? read(sum) : mutate(sum)});
  }
  engine_.wait(sum);
  for (int i = 0; i < 300; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(i)], 5 * (i + 1));
}

TEST_P(Commute, AWaitComesAfterAll) {
  const Var sum = engine_.new_var("sum");
  int value = 0;
  for (int i = 0; i < 100; ++i) {
    engine_.push([&] { ++value; }, {commute(sum)});
    engine_.push([&] { ++value; }, {commute(sum)});
    engine_.wait(sum);
    ASSERT_EQ(value, 2 * (i + 1));
  }
}

TEST_P(Commute, AFailurePoisonsWhatCommutesBehindItAndWhatReads) {
  const Var v = engine_.new_var("v");
  engine_.push([] { throw std::runtime_error("broken"); }, {commute(v)}, {.name = "bad"});
  EXPECT_THROW(engine_.wait(v), OpError);
  bool ran = false;
  engine_.push([&] { ran = true; }, {commute(v)});
  EXPECT_THROW(engine_.wait(v), OpError);
  EXPECT_FALSE(ran);
  engine_.heal(v);
  engine_.push([&] { ran = true; }, {commute(v)});
  engine_.wait(v);
  EXPECT_TRUE(ran);
  EXPECT_EQ(engine_.stats().failed, 1u);
  EXPECT_EQ(engine_.stats().skipped, 1u);
  EXPECT_EQ(engine_.failures(), 2u);
}

TEST_P(Commute, OfAsyncAndDeclaredOpsEachRunsAloneToo) {
  const Var v = engine_.new_var("v");
  Room room;
  int count = 0;
  const DeclaredOp declared = engine_.declare([&] { room.pass(), ++count; }, {commute(v)});
  for (int i = 0; i < 200; ++i) {
    engine_.push(declared);
    engine_.push_async([&](OnComplete done) { room.pass(), ++count, done(); }, {commute(v)});
  }
  engine_.wait(v);
  EXPECT_TRUE(room.all_were_alone());
  EXPECT_EQ(count, 400);
}

TEST_P(Commute, ComesAfterTheReadsOfAGraphThatWroteBefore) {
  const Var v = engine_.new_var("v");
  int value = 0, wrong = 0;
  const Graph graph = engine_.capture([&] {
    engine_.push([&] { value = 1000; }, {mutate(v)});
    engine_.push([&] { wrong += value != 1000; }, {read(v)});
  });
  for (int i = 0; i < 300; ++i) {
    graph.launch();
    engine_.push([&] { ++value; }, {commute(v)});
    engine_.push([&] { ++value; }, {commute(v)});
  }
  engine_.wait_all();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(value, 1002);
}

TEST_P(Commute, OpsOfAGraphKeepTheirOrder) {
  const Var v = engine_.new_var("v");
  std::vector<int> order;
  const Graph graph = engine_.capture([&] {
    for (int i = 0; i < 10; ++i) engine_.push([&, i] { order.push_back(i); }, {commute(v)});
  });
  graph.launch();
  engine_.wait(v);
  EXPECT_EQ(order, (std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_P(Commute, TheVariableMayEnd) {
  for (int i = 0; i < 50; ++i) {
    const Var v = engine_.new_var("v");
    int count = 0;
    engine_.push([&] { ++count; }, {read(v)});
    engine_.push([&] { ++count; }, {commute(v)});
    engine_.retire(v, [&] { ++count; });
    engine_.wait_all();
    ASSERT_EQ(count, 3);
  }
}

WINDROW_EVERY_POLICY(Commute);

/// What no other kind of access does.
TEST(CommuteOrder, OneThatIsReadyDoesNotWaitForOneThatIsNot) {
  Engine engine({.policy = Policy::pool, .workers = 1});
  const Var late = engine.new_var("late"), sum = engine.new_var("sum");
  Gate gate;
  std::vector<int> order;
  engine.push_async(
      [&](OnComplete done) {
        std::thread([&, done = std::move(done)]() mutable {
          EXPECT_TRUE(gate.pass());
          done();
        }).detach();
      },
      {mutate(late)});
  engine.push([&] { order.push_back(1); }, {read(late), commute(sum)});
  engine.push([&] { order.push_back(2), gate.open(); }, {commute(sum)});
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
