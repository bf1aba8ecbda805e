// What an op on an ordered lane may rely on while it issues work, and how much may be in flight.
#include "sim_device.h"
#include "support.h"
#include "windrow/engine/internal/engine_use.h"

namespace windrow::testing {
namespace {

/// One lane on which at most three ops are in flight.
class LaneIssueTest : public EngineOnEveryPolicy {
 protected:
  static constexpr std::uint32_t most = 3;

  std::shared_ptr<SimLane> lane = std::make_shared<SimLane>("lane"), other = std::make_shared<SimLane>("other");
  LaneId on_lane = engine.add_lane(lane, {.max_in_flight = most}), on_other = engine.add_lane(other);

  /// An op that launches work on the lane.
  void push_work(const std::function<void()>& work, AccessList accesses) {
    engine.push([this, work] { lane->launch(work); }, accesses, {.lane = on_lane});
  }
  void push_failure() {
    push_work([] { throw std::runtime_error("device lost"); }, {mutate(a)});
  }

  void TearDown() override { lane->let_go(); }
};
WINDROW_EVERY_POLICY(LaneIssueTest);
class ThreadedLaneIssueTest : public LaneIssueTest {};
WINDROW_THREADED_POLICIES(ThreadedLaneIssueTest);

TEST_P(LaneIssueTest, AnOpKnowsItsLane) {
  std::atomic<Lane*> seen{nullptr}, seen_by_async{nullptr}, on_host{lane.get()}, in_graph{nullptr};
  engine.push([&](OpContext& context) { seen = context.lane(); }, {mutate(a)}, {.lane = on_lane});
  engine.push_async([&](OnComplete done) { seen_by_async = done.lane(), done(); }, {mutate(a)}, {.lane = on_other});
  engine.push([&](OpContext& context) { on_host = context.lane(); }, {mutate(a)});
  const Graph graph = engine.capture(
      [&] { engine.push([&](OpContext& context) { in_graph = context.lane(); }, {mutate(a)}, {.lane = on_other}); });
  graph.launch();
  engine.wait(a);
  EXPECT_EQ(seen, lane.get());
  EXPECT_EQ(seen_by_async, other.get());
  EXPECT_EQ(on_host, nullptr);
  EXPECT_EQ(in_graph, other.get());
}

TEST_P(LaneIssueTest, AnOpIssuesInsideASectionOfItsLane) {
  std::atomic<int> outside{0};
  const auto look = [&] { outside += lane->open_sections() != 1; };
  for (int i = 0; i < 5; ++i) engine.push(look, {mutate(a)}, {.lane = on_lane});
  engine.push_async([&](OnComplete done) { look(), done(); }, {mutate(a)}, {.lane = on_lane});
  engine.wait_all();
  EXPECT_EQ(outside, 0);
  EXPECT_EQ(lane->sections(), 7);  // the point of an asynchronous op has a section of its own
  EXPECT_EQ(lane->open_sections(), 0);
  EXPECT_EQ(other->sections(), 0);
}

TEST_P(ThreadedLaneIssueTest, AVariableIsIdleWhenNoOpIsPendingOnIt) {
  EXPECT_TRUE(EngineUse::is_idle(engine, a, nullptr));
  std::atomic<bool> open{false};
  const auto wait_for_gate = [&] {
    while (!open) std::this_thread::yield();
  };
  for (const auto& access : {read(a), mutate(a), commute(a)}) {
    open = false;
    engine.push(wait_for_gate, {access});
    EXPECT_FALSE(EngineUse::is_idle(engine, a, nullptr));
    EXPECT_TRUE(EngineUse::is_idle(engine, b, nullptr));
    open = true;
    engine.wait_all();
    EXPECT_TRUE(EngineUse::is_idle(engine, a, nullptr));
  }
  for (const auto& access : {mutate(a), read(a)}) {
    lane->hold();
    std::atomic<bool> issued{false};
    engine.push([&] { lane->launch([] {}), issued = true; }, {access}, {.lane = on_lane});
    while (!issued) std::this_thread::yield();
    // Issued in full when another op of the lane is.
    engine.push([&] { issued = false; }, {mutate(b)}, {.lane = on_lane});
    while (issued) std::this_thread::yield();
    EXPECT_TRUE(EngineUse::is_idle(engine, a, lane.get()));
    EXPECT_FALSE(EngineUse::is_idle(engine, a, nullptr));
    EXPECT_FALSE(EngineUse::is_idle(engine, a, other.get()));
    lane->let_go();
    engine.wait_all();
    EXPECT_TRUE(EngineUse::is_idle(engine, a, nullptr));
  }
  engine.retire(b);
  EXPECT_THROW(EngineUse::is_idle(engine, b, nullptr), MisuseError);
}

TEST_P(LaneIssueTest, AnErrorOfASectionFailsItsOpAlone) {
  const auto refuse = [&] { lane->fail_section(std::make_exception_ptr(Error("no such kernel"))); };
  engine.push(refuse, {mutate(a)}, {.name = "refused", .lane = on_lane});
  bool ran = false;
  push_work([&] { ran = true; }, {mutate(b)});
  expect_error<OpError>([&] { engine.wait(a); }, {"op 'refused'", "no such kernel"});
  engine.wait(b);
  EXPECT_TRUE(ran);
  engine.push_async([&](OnComplete done) { refuse(), done(); }, {overwrite(a)}, {.lane = on_lane});
  EXPECT_THROW(engine.wait(a), OpError);
  const auto both = [&] { refuse(), throw Error("bad shape"); };
  engine.push(both, {overwrite(a)}, {.lane = on_lane});
  expect_error<OpError>([&] { engine.wait(a); }, "bad shape");
}

TEST_P(ThreadedLaneIssueTest, NoMoreOpsAreInFlightThanTheLaneAllows) {
  constexpr int ops = 100;
  std::atomic<int> issued{0};
  std::atomic<std::uint32_t> done{0}, too_many{0};
  lane->hold();
  for (int i = 0; i < ops; ++i) {
    const auto issue = [&] {
      too_many += static_cast<std::uint32_t>(++issued) - done > most;
      lane->launch([&] { ++done; });
    };
    engine.push(issue, {i % 2 == 0 ? mutate(a) : read(b)}, {.lane = on_lane});
  }
  ASSERT_TRUE(comes_true([&] { return issued == static_cast<int>(most); }));
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(issued, static_cast<int>(most));
  EXPECT_EQ(engine.stats().pending, static_cast<std::uint64_t>(ops) - most);
  engine.push([] {}, {mutate(c)});
  ASSERT_TRUE(engine.wait_for({read(c)}, patience));  // no thread is blocked
  const std::string text = engine.describe_pending();
  EXPECT_NE(text.find("waits for its turn on lane 'lane'"), std::string::npos) << text;
  EXPECT_NE(text.find("lane 'lane' has to reach 3 points"), std::string::npos) << text;
  lane->let_go();
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(done, static_cast<std::uint32_t>(ops));
  EXPECT_EQ(too_many, 0u);
}

TEST_P(ThreadedLaneIssueTest, AFailedLaneHasRoomForTheOpsThatFailWithIt) {
  lane->hold();
  push_failure();
  for (int i = 0; i < 20; ++i) push_work([] {}, {mutate(a)});
  lane->let_go();
  EXPECT_THROW(engine.wait(a), OpError);
  EXPECT_THROW(engine.wait_all(), OpError);
}

/// What a thread does that pushes far ahead of a device that stands still.
void push_ahead(const LaneOptions& lane_options, std::chrono::nanoseconds patience_of_push,
                const std::function<void(std::atomic<int>& pushed)>& look) {
  Engine engine({.policy = Policy::pool, .workers = 2, .max_pending_ops = 8, .push_patience = patience_of_push});
  const auto lane = std::make_shared<SimLane>("lane");
  const LaneId on_lane = engine.add_lane(lane, lane_options);
  const Var a = engine.new_var();
  lane->hold();
  std::atomic<int> pushed{0};
  std::jthread pusher([&] {
    for (int i = 0; i < 100; ++i, ++pushed) {
      engine.push([&, memory = std::make_shared<int>(i)] { lane->launch([] {}); }, {mutate(a)}, {.lane = on_lane});
    }
  });
  look(pushed);
  lane->let_go();
  pusher.join();
  engine.wait_all();
}

TEST(LaneBackPressure, HoldsAThreadWhileTheDeviceWorks) {
  push_ahead({.max_in_flight = 2}, EngineOptions().push_patience, [](std::atomic<int>& pushed) {
    std::this_thread::sleep_for(100ms);  // longer than a thread is held if nothing were under way
    EXPECT_LE(pushed, 2 + 8 + 2);
  });
}

TEST(LaneBackPressure, HoldsNoThreadForOpsThatWereIssued) {
  push_ahead({}, std::chrono::hours(1),
             [](std::atomic<int>& pushed) { EXPECT_TRUE(comes_true([&] { return pushed == 100; })); });
}

TEST_P(ThreadedLaneIssueTest, CapturesAreKeptUntilTheDeviceHasUsedThem) {
  const auto memory = std::make_shared<int>();
  std::atomic<int> missing{0};
  lane->hold();
  const auto launch = [&] { lane->launch([&] { missing += memory.use_count() == 1; }); };
  for (int i = 0; i < 2; ++i) engine.push([launch, memory] { launch(); }, {mutate(a)}, {.lane = on_lane});
  engine.push_async([launch, memory](OnComplete done) { launch(), done(); }, {mutate(a)}, {.lane = on_lane});
  ASSERT_TRUE(comes_true([&] { return engine.stats().pending == 0; }));
  EXPECT_EQ(memory.use_count(), 1 + 3);
  lane->let_go();
  EXPECT_TRUE(comes_true([&] { return memory.use_count() == 1; }));  // without another push or wait
  EXPECT_EQ(missing, 0);
}

TEST_P(ThreadedLaneIssueTest, AGraphThatEndsKeepsItsCapturesForTheDevice) {
  const auto memory = std::make_shared<int>();
  for (const int ops : {1, 3}) {
    lane->hold();
    const auto push = [&, memory] {
      for (int i = 0; i < ops; ++i)
        engine.push([this, memory] { lane->launch([] {}); }, {mutate(a)}, {.lane = on_lane});
    };
    engine.capture(push).launch();
    ASSERT_TRUE(comes_true([&] { return engine.stats().pending == 0; }));
    EXPECT_EQ(memory.use_count(), 2 + ops);  // with that of `push`
    lane->let_go();
    EXPECT_TRUE(comes_true([&] { return memory.use_count() == 2; }));
  }
}

TEST_P(LaneIssueTest, AFailingOpKeepsItsCapturesToo) {
  const auto memory = std::make_shared<int>();
  lane->hold();
  if (GetParam().policy == Policy::serial) lane->let_go();  // where a push waits for the point
  engine.push([memory] { throw Error("after a launch"); }, {mutate(a)}, {.lane = on_lane});
  ASSERT_TRUE(comes_true([&] { return engine.stats().pending == 0; }));
  EXPECT_EQ(memory.use_count(), GetParam().policy == Policy::serial ? 1 : 2);
  lane->let_go();
  EXPECT_TRUE(comes_true([&] { return memory.use_count() == 1; }));
  EXPECT_THROW(engine.wait_all(), OpError);
}

TEST_P(LaneIssueTest, AnEngineEndsBehindTheLastCaptures) {
  const auto memory = std::make_shared<int>();
  {
    Engine ending(options({.max_pending_bytes = 100}));
    const auto slow = std::make_shared<SimLane>("slow");
    const LaneId on_slow = ending.add_lane(slow);
    const Var v = ending.new_var();
    const auto issue = [slow = slow.get(), memory] { slow->launch([] { std::this_thread::sleep_for(200us); }); };
    for (int i = 0; i < 10; ++i) ending.push(issue, {mutate(v)}, {.lane = on_slow, .bytes = 10});
  }
  EXPECT_EQ(memory.use_count(), 1);
}

TEST_P(ThreadedLaneIssueTest, CapturesMayHoldTheLastOwnerOfTheEngine) {
  Gate ended;
  const auto slow = std::make_shared<SimLane>("slow");
  slow->hold();
  {
    auto owner = std::make_shared<Engine>(opens_at_its_end(options(), ended));
    const LaneId on_slow = owner->add_lane(slow);
    Engine& of = *owner;
    of.push([&, owner = std::move(owner)] { slow->launch([] {}); }, {}, {.lane = on_slow, .bytes = 10});
  }
  slow->let_go();
  ended.await();
}

TEST_P(LaneIssueTest, CapturesMayRetireAndPushWhenTheyEnd) {
  int ended = 0;
  const auto retires_and_pushes = [&] {
    return std::make_unique<AtEnd>([&, own = engine.new_var()] {
      engine.retire(own);
      engine.push([&] { ++ended; }, {mutate(b)});
    });
  };
  for (int i = 0; i < 50; ++i) {
    engine.push([&, on_end = retires_and_pushes()] { lane->launch([] {}); }, {mutate(a)}, {.lane = on_lane});
    engine.push_async(
        [&, on_end = retires_and_pushes()](OnComplete done) {
          lane->launch([token = std::make_shared<OnComplete>(std::move(done))] { (*token)(); });
        },
        {mutate(a)}, {.lane = on_lane});
  }
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(ended, 100);
}

TEST_P(LaneIssueTest, ARemovedLaneHasDoneItsWorkAndTakesNoMore) {
  int value = 0, seen = 0;
  push_work([&] { std::this_thread::sleep_for(5ms), value = 7; }, {mutate(a)});
  const PushOptions known{.lane = on_lane};
  Graph graph = engine.capture([&] { engine.push([] {}, {mutate(a)}, {.lane = on_lane}); });
  engine.remove_lane(on_lane);
  EXPECT_EQ(value, 7);
  EXPECT_TRUE(lane->is_closed());
  EXPECT_FALSE(other->is_closed());
  const std::string refusal = "lane 'lane' was removed from its engine; expected a lane that was not";
  EXPECT_EQ(error_of<MisuseError>([&] { engine.push([] {}, {mutate(a)}, known); }), refusal);
  EXPECT_EQ(error_of<MisuseError>([&] { graph.launch(); }), refusal);
  EXPECT_EQ(error_of<MisuseError>([&] { engine.remove_lane(on_lane); }), "lane 'lane' was removed before");
  engine.push([&] { seen = value; }, {read(a)});
  engine.push([&] { other->launch([&] { value = 8; }); }, {mutate(a)}, {.lane = on_other});
  engine.wait_all();
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(value, 8);
}

TEST_P(LaneIssueTest, AFailedLaneIsStillReportedWhenItIsRemoved) {
  push_failure();
  engine.remove_lane(on_lane);
  EXPECT_THROW(engine.wait(a), OpError);
  EXPECT_THROW(engine.wait_all(), OpError);
}

TEST_P(LaneIssueTest, OnlyAnOrderedLaneOfThisEngineIsRemoved) {
  Engine foreign;
  const LaneId of_host = engine.add_lane(HostLane{.name = "copies"});
  EXPECT_EQ(error_of<MisuseError>([&] { engine.remove_lane(host_lane); }),
            "remove_lane was given the host lane; expected an ordered lane");
  EXPECT_EQ(error_of<MisuseError>([&] { engine.remove_lane(of_host); }),
            "remove_lane was given host lane 'copies'; expected an ordered lane");
  EXPECT_EQ(error_of<MisuseError>([&] { foreign.remove_lane(on_lane); }),
            "remove_lane was given a lane of another engine");
  engine.push([&] { engine.remove_lane(on_lane); }, {mutate(a)}, {.name = "remover"});
  expect_error<OpError>([&] { engine.wait(a); }, "remove_lane inside op 'remover'");
  EXPECT_EQ(error_of<MisuseError>([&] { engine.add_lane(std::make_shared<SimLane>("none"), {.max_in_flight = 0}); }),
            "lane 'none' has max_in_flight = 0; expected 1 or more");
}

TEST_P(ThreadedLaneIssueTest, PushesBesideARemovalRunFailOrAreRefused) {
  for (int round = 0; round < 20; ++round) {
    const auto brief = std::make_shared<SimLane>("brief");
    const LaneId on_brief = engine.add_lane(brief);
    const Var v = engine.new_var();
    std::atomic<int> issued_after_close{0};
    std::atomic<bool> refused{false};
    std::jthread pusher([&] {
      try {
        for (;;) engine.push([&] { issued_after_close += brief->is_closed(); }, {mutate(v)}, {.lane = on_brief});
      } catch (const MisuseError&) {
        refused = true;
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(50 * round));
    engine.remove_lane(on_brief);
    pusher.join();
    EXPECT_TRUE(refused);
    EXPECT_EQ(issued_after_close, 0);
    try {
      engine.wait(v);
    } catch (const OpError& error) {
      EXPECT_NE(std::string(error.what()).find("was removed"), std::string::npos) << error.what();
    }
  }
}

/// An op that becomes ready when its lane is free again comes before later pushes that were ready all the time.
TEST_P(LaneIssueTest, TakesTheEarliestPushOfThoseThatAreReady) {
  if (GetParam().policy == Policy::chaos) GTEST_SKIP() << "takes any";
  Gate pushed;
  std::vector<int> order;  // of ops of one lane, one at a time
  const Var held = engine.new_var("held");
  const auto note = [&](int number) { return [&order, number] { order.push_back(number); }; };
  if (GetParam().policy == Policy::serial) pushed.open();  // where a push runs the op
  engine.push([&] { pushed.await(); }, {mutate(held)}, {.lane = on_lane});
  engine.push(note(1), {mutate(a)}, {.lane = on_lane});
  engine.push(note(2), {read(a)}, {.lane = on_lane});
  engine.push(note(3), {mutate(b)}, {.lane = on_lane});
  pushed.open();
  engine.wait_all();
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
  engine.retire(held);
}

}  // namespace
}  // namespace windrow::testing
