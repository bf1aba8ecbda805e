// Lanes and points, on a simulated device with two ordered lanes.

#include "sim_device.h"
#include "support.h"

namespace windrow::testing {
namespace {

class LaneTest : public EngineOnEveryPolicy {
 protected:
  std::shared_ptr<SimLane> one = std::make_shared<SimLane>("one"), two = std::make_shared<SimLane>("two");
  std::shared_ptr<SimLane> far = std::make_shared<SimLane>("far", 2);
  LaneId on_one = engine.add_lane(one), on_two = engine.add_lane(two), on_far = engine.add_lane(far);

  /// Ops of lane `one`: each launches work, or fails the lane.
  void push_work(std::function<void()> work, AccessList accesses) {
    engine.push([this, work] { one->launch(work); }, accesses, {.lane = on_one});
  }
  void push_failure(AccessList accesses) {
    push_work([] { throw std::runtime_error("device lost"); }, accesses);
  }

  void TearDown() override { one->let_go(); }
};
WINDROW_EVERY_POLICY(LaneTest);

/// With the policies that issue ahead of the device; a serial engine finishes each op before the next.
class ThreadedLaneTest : public LaneTest {};
WINDROW_THREADED_POLICIES(ThreadedLaneTest);

TEST(SerialLaneTest, APushReturnsWhenThePointOfItsOpIsReached) {
  Engine engine({.policy = Policy::serial});
  const auto lane = std::make_shared<SimLane>("lane");
  const LaneId on_lane = engine.add_lane(lane);
  const Var a = engine.new_var("a");
  for (int i = 1; i <= 10; ++i) {
    int value = 0;
    engine.push([&] { lane->launch([&value, i] { std::this_thread::sleep_for(100us), value = i; }); }, {mutate(a)},
                {.lane = on_lane});
    EXPECT_EQ(value, i);
  }
}

TEST_P(ThreadedLaneTest, ASuccessorOnTheSameLaneIsIssuedAtOnce) {
  int value = 1;
  std::atomic<int> issued{0};
  one->hold();
  for (int i = 0; i < 10; ++i) {
    engine.push([&] { one->launch([&] { value *= 2; }), ++issued; }, {mutate(a)}, {.lane = on_one});
  }
  EXPECT_TRUE(comes_true([&] { return issued == 10; }));  // although nothing has run on the lane
  EXPECT_FALSE(engine.wait_for({read(a)}, 10ms));
  one->let_go();
  engine.wait(a);
  EXPECT_EQ(value, 1024);
  EXPECT_EQ(one->waits_issued(), 0);
}

TEST_P(ThreadedLaneTest, ASuccessorOnAnotherLaneWaitsThereAndBlocksNoHostThread) {
  int value = 0, seen = 0;
  Gate issued;
  one->hold();
  push_work([&] { value = 7; }, {mutate(a)});
  engine.push([&] { two->launch([&] { seen = value; }), issued.open(); }, {read(a), mutate(b)}, {.lane = on_two});
  issued.await();
  EXPECT_EQ(two->waits_issued(), 1);
  engine.push([] {}, {mutate(c)});
  ASSERT_TRUE(engine.wait_for({read(c)}, patience));  // a host thread is free
  EXPECT_FALSE(engine.wait_for({read(b)}, 10ms));
  one->let_go();
  engine.wait(b);
  EXPECT_EQ(seen, 7);
}

TEST_P(LaneTest, LanesThatCannotWaitForEachOtherMeetOnTheHost) {
  int value = 0, seen = 0;
  push_work([&] { std::this_thread::sleep_for(5ms), value = 7; }, {mutate(a)});
  engine.push([&] { far->launch([&] { seen = value; }); }, {read(a), mutate(b)}, {.lane = on_far});
  engine.wait(b);
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(far->waits_issued(), 0);
}

TEST_P(LaneTest, AFailingDevicePoisonsItsVariablesAndLeavesTheRest) {
  bool reader_ran = false, host_ran = false, two_ran = false;
  engine.push([&] { one->launch([] { throw std::runtime_error("device lost"); }); }, {mutate(a)},
              {.name = "kernel", .lane = on_one});
  engine.push([&] { reader_ran = true; }, {read(a), mutate(b)}, {.name = "copy"});
  engine.push([&] { host_ran = true; }, {mutate(c)});
  engine.push([&] { two->launch([&] { two_ran = true; }); }, {mutate(c)}, {.lane = on_two});
  for (int i = 0; i < 2; ++i) {
    expect_error<OpError>([&] { engine.wait(b); }, {"op 'copy'", "op 'kernel'", "device lost"});
    EXPECT_THROW(engine.wait(a), OpError);
    EXPECT_THROW(engine.wait_all(), OpError);
  }
  engine.wait(c);
  EXPECT_FALSE(reader_ran);
  EXPECT_TRUE(host_ran);
  EXPECT_TRUE(two_ran);
  engine.push([] {}, {overwrite(a)});
  engine.heal(b);
  engine.wait({read(a), read(b)});
}

TEST_P(LaneTest, ALaneThatWaitedForAFailedPointFailsToo) {
  push_failure({mutate(a)});
  engine.push([&] { two->launch([] {}); }, {read(a), mutate(b)}, {.lane = on_two});
  EXPECT_THROW(engine.wait(b), OpError);
}

TEST_P(LaneTest, AnOverwriteOnAnotherLaneOutlivesAFailedWrite) {
  int value = 0;
  for (const auto& [lane, id] : {std::pair{two, on_two}, {far, on_far}}) {
    push_failure({mutate(a)});
    engine.push([&, lane = lane] { lane->launch([&] { value = 1; }); }, {overwrite(a)}, {.lane = id});
    engine.push([&, lane = lane] { lane->launch([&] { value *= 7; }); }, {mutate(a)}, {.lane = id});
    engine.wait(a);
    EXPECT_EQ(value, 7);
  }
}

TEST_P(LaneTest, AFailedReaderLeavesWhatItReadsAlone) {
  for (const LaneId writer : {host_lane, on_two, on_far}) {
    push_failure({read(a), mutate(b)});
    bool ran = false;
    engine.push([&] { ran = true; }, {mutate(a)}, {.lane = writer});
    engine.wait({mutate(a)});
    EXPECT_TRUE(ran);
    EXPECT_THROW(engine.wait(b), OpError);
  }
  bool ran = false;
  engine.push([&] { two->launch([&] { ran = true; }); }, {}, {.lane = on_two});
  push_work([] {}, {read(a)});
  engine.wait({mutate(a)});
  EXPECT_THROW(engine.wait_all(), OpError);
  EXPECT_TRUE(ran);
}

TEST_P(LaneTest, AnOpThatThrowsWhileIssuingPoisonsLikeAnyOther) {
  engine.push([&] { throw std::runtime_error("bad launch"); }, {mutate(a)}, {.lane = on_one});
  bool ran = false;
  push_work([&] { ran = true; }, {read(a), mutate(b)});
  EXPECT_THROW(engine.wait(b), OpError);
  EXPECT_FALSE(ran);
}

TEST_P(LaneTest, ARetireWaitsForTheLane) {
  auto data = std::make_unique<int>(0);
  push_work([p = data.get()] { std::this_thread::sleep_for(5ms), *p = 1; }, {mutate(a)});
  engine.retire(a, [&] { data.reset(); });
  engine.wait_all();
  EXPECT_EQ(data, nullptr);
}

TEST_P(LaneTest, OneOpAtATimeIsIssuedOnALane) {
  Crowd crowd;
  for (int i = 0; i < 50; ++i) {
    engine.push([&] { crowd.pass([] { std::this_thread::sleep_for(50us); }); }, {}, {.lane = on_one});
  }
  engine.wait_all();
  EXPECT_EQ(crowd.most(), 1);
}

TEST_P(LaneTest, AWaitInsideAnOpOfAnOrderedLaneIsRefused) {
  engine.push([&] { engine.wait(b); }, {mutate(a)}, {.name = "issuer", .lane = on_one});
  expect_error<OpError>([&] { engine.wait(a); }, "wait inside op 'issuer' on ordered lane 'one' would stop its device");
}

TEST_P(LaneTest, WhatIsLostNamesItsOpAndItsLane) {
  const PushOptions first{.name = "first", .lane = on_one}, second{.name = "second", .lane = on_one};
  engine.push([&] { one->launch([] { throw std::runtime_error("device lost"); }); }, {mutate(a)}, first);
  engine.push([&] { one->launch([] {}); }, {mutate(b)}, second);
  const auto lost = [](const std::string& name, const PushOptions& options) {
    return "op '" + name + "' (pushed at " + __FILE__ + ":" + std::to_string(options.pushed_at.line()) +
           ") was lost because lane 'one' failed: device lost";
  };
  EXPECT_EQ(error_of<OpError>([&] { engine.wait_all(); }), "lane 'one' failed: device lost");
  EXPECT_EQ(error_of<OpError>([&] { engine.wait(b); }), lost("second", second));
  EXPECT_EQ(error_of<OpError>([&] { engine.wait(a); }), lost("first", first));
}

TEST_P(ThreadedLaneTest, APollHoldsUpNoLaterOpOfTheLane) {
  Gate issued;
  one->hold();
  push_work([] {}, {mutate(a)});
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(engine.wait_for({read(a)}, 10us));
  engine.push([&] { one->launch([] {}), issued.open(); }, {mutate(a)}, {.lane = on_one});
  issued.await();
  one->let_go();
  engine.wait(a);
}

TEST_P(LaneTest, ALaneIsAddedOnce) {
  EXPECT_EQ(error_of<MisuseError>([&] { engine.add_lane(one); }), "lane 'one' was added to this engine before");
}

TEST_P(LaneTest, RetiresAfterShutdownAreIssuedOneAtATime) {
  constexpr int threads = 4, retires = 200;
  std::vector<Var> vars;
  for (int i = 0; i < threads * retires; ++i) vars.push_back(engine.new_var());
  engine.push([] {}, {}, {.lane = on_one});
  engine.shutdown();
  Crowd crowd;
  int ran = 0;
  on_threads(threads, [&](int thread) {
    for (int i = 0; i < retires; ++i) {
      const auto last = [&] { crowd.pass([&] { ++ran, std::this_thread::yield(); }); };
      engine.retire(vars[static_cast<std::size_t>(thread * retires + i)], last, {.lane = on_one});
    }
  });
  EXPECT_EQ(crowd.most(), 1);
  EXPECT_EQ(ran, threads * retires);
}

TEST_P(LaneTest, AnAsyncOpOnALaneLeavesItsPointWhenItsTokenIsCalled) {
  int value = 0, seen = 0;
  std::jthread issuer;
  engine.push_async(
      [&](OnComplete done) {
        issuer = std::jthread([&, done = std::move(done)]() mutable {
          std::this_thread::sleep_for(2ms);
          one->launch([&] { std::this_thread::sleep_for(2ms), value = 7; });
          done();
        });
      },
      {mutate(a)}, {.lane = on_one});
  engine.push([&] { seen = value; }, {read(a), mutate(b)});
  engine.wait(b);
  EXPECT_EQ(seen, 7);
}

}  // namespace
}  // namespace windrow::testing
