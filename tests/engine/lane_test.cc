// Lanes and points, on a simulated device with two ordered lanes.
#include <atomic>
#include <memory>
#include <thread>

#include "sim_device.h"
#include "support.h"

namespace windrow::testing {
namespace {

class LaneTest : public ::testing::TestWithParam<Setup> {
 protected:
  Engine engine{{.policy = GetParam().policy, .workers = GetParam().workers}};
  std::shared_ptr<SimLane> one = std::make_shared<SimLane>("one"), two = std::make_shared<SimLane>("two");
  std::shared_ptr<SimLane> far = std::make_shared<SimLane>("far", 2);
  LaneId on_one = engine.add_lane(one), on_two = engine.add_lane(two), on_far = engine.add_lane(far);
  Var a = engine.new_var("a"), b = engine.new_var("b");

  void TearDown() override {
    one->let_go();
    two->let_go();
    far->let_go();
  }
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

TEST_P(LaneTest, AHostOpRunsWhenThePointIsReached) {
  int value = 0, seen = 0;
  engine.push([&] { one->launch([&] { std::this_thread::sleep_for(5ms), value = 7; }); }, {mutate(a)},
              {.lane = on_one});
  engine.push([&] { seen = value; }, {read(a), mutate(b)});
  engine.wait(b);
  EXPECT_EQ(seen, 7);
}

TEST_P(LaneTest, AWaitReturnsWhenThePointIsReached) {
  int value = 0;
  engine.push([&] { one->launch([&] { std::this_thread::sleep_for(5ms), value = 7; }); }, {mutate(a)},
              {.lane = on_one});
  engine.wait(a);
  EXPECT_EQ(value, 7);
}

TEST_P(LaneTest, WaitAllWaitsForTheLanes) {
  std::atomic<int> value{0};
  engine.push([&] { one->launch([&] { std::this_thread::sleep_for(5ms), ++value; }); }, {}, {.lane = on_one});
  engine.push([&] { two->launch([&] { std::this_thread::sleep_for(5ms), ++value; }); }, {}, {.lane = on_two});
  engine.wait_all();
  EXPECT_EQ(value, 2);
}

TEST_P(LaneTest, AHostWriterWaitsForReadersOnLanes) {
  int value = 1;
  std::atomic<int> seen{0};
  for (const auto& [lane, id] : {std::pair{one, on_one}, {two, on_two}, {far, on_far}}) {
    engine.push([&, lane = lane] { lane->launch([&] { std::this_thread::sleep_for(5ms), seen += value; }); }, {read(a)},
                {.lane = id});
  }
  engine.push([&] { value = 100; }, {mutate(a)});
  engine.wait(a);
  EXPECT_EQ(seen, 3);
}

TEST_P(ThreadedLaneTest, ASuccessorOnTheSameLaneIsIssuedAtOnce) {
  int value = 1;
  std::atomic<int> issued{0};
  one->hold();
  for (int i = 0; i < 10; ++i) {
    engine.push([&] { one->launch([&] { value *= 2; }), ++issued; }, {mutate(a)}, {.lane = on_one});
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (issued < 10 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(issued, 10);  // although nothing has run on the lane
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
  engine.push([&] { one->launch([&] { value = 7; }); }, {mutate(a)}, {.lane = on_one});
  engine.push([&] { two->launch([&] { seen = value; }), issued.open(); }, {read(a), mutate(b)}, {.lane = on_two});
  EXPECT_TRUE(issued.pass());
  EXPECT_EQ(two->waits_issued(), 1);
  bool host_ran = false;
  const Var c = engine.new_var();
  engine.push([&] { host_ran = true; }, {mutate(c)});
  ASSERT_TRUE(engine.wait_for({read(c)}, patience));  // a host thread is free
  EXPECT_TRUE(host_ran);
  EXPECT_FALSE(engine.wait_for({read(b)}, 10ms));
  one->let_go();
  engine.wait(b);
  EXPECT_EQ(seen, 7);
}

TEST_P(LaneTest, LanesThatCannotWaitForEachOtherMeetOnTheHost) {
  int value = 0, seen = 0;
  engine.push([&] { one->launch([&] { std::this_thread::sleep_for(5ms), value = 7; }); }, {mutate(a)},
              {.lane = on_one});
  engine.push([&] { far->launch([&] { seen = value; }); }, {read(a), mutate(b)}, {.lane = on_far});
  engine.wait(b);
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(far->waits_issued(), 0);
}

TEST_P(ThreadedLaneTest, AReusedEventDoesNotSatisfyAnOldWait) {
  // The lane has two events. Between writer and reader many points reuse both.
  int value = 0, seen = 0;
  one->hold();
  for (int i = 0; i < 7; ++i) engine.push([&] { one->launch([] {}); }, {}, {.lane = on_one});
  engine.push([&] { one->launch([&] { std::this_thread::sleep_for(5ms), value = 7; }); }, {mutate(a)},
              {.lane = on_one});
  engine.push([&] { seen = value; }, {read(a), mutate(b)});
  for (int i = 0; i < 7; ++i) engine.push([&] { one->launch([] {}); }, {}, {.lane = on_one});
  one->let_go();
  engine.wait(b);
  EXPECT_EQ(seen, 7);
}

TEST_P(LaneTest, AFailingDevicePoisonsItsVariablesAndLeavesTheRest) {
  const Var c = engine.new_var();
  bool reader_ran = false, host_ran = false, two_ran = false;
  engine.push([&] { one->launch([] { throw std::runtime_error("device lost"); }); }, {mutate(a)},
              {.name = "kernel", .lane = on_one});
  engine.push([&] { reader_ran = true; }, {read(a), mutate(b)}, {.name = "copy"});
  engine.push([&] { host_ran = true; }, {mutate(c)});
  engine.push([&] { two->launch([&] { two_ran = true; }); }, {mutate(c)}, {.lane = on_two});
  for (int i = 0; i < 2; ++i) {
    const std::string text = error_of<OpError>([&] { engine.wait(b); });
    EXPECT_NE(text.find("op 'copy'"), std::string::npos) << text;
    EXPECT_NE(text.find("op 'kernel'"), std::string::npos) << text;
    EXPECT_NE(text.find("device lost"), std::string::npos) << text;
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
  engine.push([&] { one->launch([] { throw std::runtime_error("device lost"); }); }, {mutate(a)}, {.lane = on_one});
  engine.push([&] { two->launch([] {}); }, {read(a), mutate(b)}, {.lane = on_two});
  EXPECT_THROW(engine.wait(b), OpError);
}

TEST_P(LaneTest, AnOverwriteOnAnotherLaneOutlivesAFailedWrite) {
  int value = 0;
  for (const auto& [lane, id] : {std::pair{two, on_two}, {far, on_far}}) {
    engine.push([&] { one->launch([] { throw std::runtime_error("device lost"); }); }, {mutate(a)}, {.lane = on_one});
    engine.push([&, lane = lane] { lane->launch([&] { value = 1; }); }, {overwrite(a)}, {.lane = id});
    engine.push([&, lane = lane] { lane->launch([&] { value *= 7; }); }, {mutate(a)}, {.lane = id});
    engine.wait(a);
    EXPECT_EQ(value, 7);
  }
}

TEST_P(LaneTest, AFailedReaderLeavesWhatItReadsAlone) {
  for (const LaneId writer : {host_lane, on_two, on_far}) {
    engine.push([&] { one->launch([] { throw std::runtime_error("device lost"); }); }, {read(a), mutate(b)},
                {.lane = on_one});
    bool ran = false;
    engine.push([&] { ran = true; }, {mutate(a)}, {.lane = writer});
    engine.wait({mutate(a)});
    EXPECT_TRUE(ran);
    EXPECT_THROW(engine.wait(b), OpError);
  }
  bool ran = false;
  engine.push([&] { two->launch([&] { ran = true; }); }, {}, {.lane = on_two});
  engine.push([&] { one->launch([] {}); }, {read(a)}, {.lane = on_one});
  engine.wait({mutate(a)});
  EXPECT_THROW(engine.wait_all(), OpError);
  EXPECT_TRUE(ran);
}

TEST_P(LaneTest, AnOpThatThrowsWhileIssuingPoisonsLikeAnyOther) {
  engine.push([&] { throw std::runtime_error("bad launch"); }, {mutate(a)}, {.lane = on_one});
  bool ran = false;
  engine.push([&] { one->launch([&] { ran = true; }); }, {read(a), mutate(b)}, {.lane = on_one});
  EXPECT_THROW(engine.wait(b), OpError);
  EXPECT_FALSE(ran);
}

TEST_P(LaneTest, ARetireWaitsForTheLane) {
  auto data = std::make_unique<int>(0);
  engine.push([&, p = data.get()] { one->launch([p] { std::this_thread::sleep_for(5ms), *p = 1; }); }, {mutate(a)},
              {.lane = on_one});
  engine.retire(a, [&] { data.reset(); });
  engine.wait_all();
  EXPECT_EQ(data, nullptr);
}

TEST_P(LaneTest, OneOpAtATimeIsIssuedOnALane) {
  std::atomic<int> inside{0}, overlaps{0};
  for (int i = 0; i < 50; ++i) {
    engine.push(
        [&] {
          if (++inside > 1) ++overlaps;
          std::this_thread::sleep_for(50us);
          --inside;
        },
        {}, {.lane = on_one});
  }
  engine.wait_all();
  EXPECT_EQ(overlaps, 0);
}

TEST_P(LaneTest, AWaitInsideAnOpOfAnOrderedLaneIsRefused) {
  engine.push([&] { engine.wait(b); }, {mutate(a)}, {.name = "issuer", .lane = on_one});
  const std::string text = error_of<OpError>([&] { engine.wait(a); });
  EXPECT_NE(text.find("wait inside op 'issuer' on ordered lane 'one' would stop its device"), std::string::npos)
      << text;
}

TEST_P(LaneTest, ATokenMayBeCalledByTheLaneItself) {
  int value = 0;
  for (int i = 0; i < 20; ++i) {
    engine.push_async(
        [&](OnComplete done) {
          one->launch([&value, token = std::make_shared<OnComplete>(std::move(done))] { ++value, (*token)(); });
        },
        {mutate(a)}, {.lane = on_one});
    engine.push([&] { value *= 2; }, {mutate(a)});
    engine.push([&] { one->launch([&] { value += 3; }); }, {mutate(a)}, {.lane = on_one});
  }
  int expected = 0;
  for (int i = 0; i < 20; ++i) expected = 2 * (expected + 1) + 3;
  ASSERT_TRUE(engine.wait_for({read(a)}, patience));
  EXPECT_EQ(value, expected);
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
  engine.push([&] { one->launch([] {}); }, {mutate(a)}, {.lane = on_one});
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(engine.wait_for({read(a)}, 10us));
  engine.push([&] { one->launch([] {}), issued.open(); }, {mutate(a)}, {.lane = on_one});
  EXPECT_TRUE(issued.pass());
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
  std::atomic<int> inside{0}, overlaps{0};
  int ran = 0;
  {
    std::vector<std::jthread> pushers;
    for (int thread = 0; thread < threads; ++thread) {
      pushers.emplace_back([&, thread] {
        for (int i = 0; i < retires; ++i) {
          const auto last = [&] {
            overlaps += inside.fetch_add(1) > 0;
            ++ran;
            std::this_thread::yield();
            --inside;
          };
          engine.retire(vars[static_cast<std::size_t>(thread * retires + i)], last, {.lane = on_one});
        }
      });
    }
  }
  EXPECT_EQ(overlaps, 0);
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
