// What a trace shows is what the program did: each op once, when and where it ran, and what it waited for.
#include "windrow/engine/trace.h"

#include "read_trace.h"
#include "sim_device.h"

namespace windrow::testing {
namespace {

using TraceOfAWorker = PoolOf<1>;

class TraceOfEveryPolicy : public EngineOnEveryPolicy {};
class TraceOfThreadedPolicies : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(TraceOfEveryPolicy);
WINDROW_THREADED_POLICIES(TraceOfThreadedPolicies);

TEST_P(TraceOfEveryPolicy, ShowsHowOpsEndedAndWhereTheyWerePushed) {
  engine.trace().start();
  engine.push([] {}, {mutate(b)}, {.name = "good"});
  engine.push([] { throw std::runtime_error("no"); }, {mutate(a)}, {.name = "bad"});
  engine.push([] {}, {read(a), mutate(b)}, {.name = "victim"});
  const std::string here = std::string(__FILE__) + ":" + std::to_string(__LINE__ - 1);
  engine.push([] {}, {read(a)}, {.name = "stubborn", .run_always = true});
  engine.push([] {}, {mutate(c)}, {.name = "called off", .stop = stopped()});
  engine.push([] { throw Cancelled(); }, {overwrite(c)}, {.name = "gives up"});
  EXPECT_THROW(engine.wait_all(), OpError);
  const ReadTrace trace = read_trace(engine);
  const std::pair<const char*, const char*> outcomes[] = {
      {"good", "ran"},     {"bad", "failed"},           {"victim", "skipped"},
      {"stubborn", "ran"}, {"called off", "cancelled"}, {"gives up", "cancelled"}};
  for (const auto& [name, outcome] : outcomes) EXPECT_EQ(trace.op(name).outcome, outcome) << name;
  EXPECT_TRUE(here.ends_with(trace.op("victim").pushed_at)) << trace.op("victim").pushed_at;
  EXPECT_EQ(trace.op("good").lane, "host");
  const TraceSummary summary = engine.trace().summary();
  EXPECT_EQ(summary.failed, 1u);
  EXPECT_EQ(summary.cancelled, 2u);
  EXPECT_EQ(summary.skipped, 1u);
}

TEST_P(TraceOfThreadedPolicies, AnAsynchronousOpLastsUntilItsOnCompleteIsCalled) {
  engine.trace().start();
  HeldOp first(engine, {mutate(a)}, "first"), second(engine, {mutate(b)}, "second");
  engine.push([] {}, {mutate(c)}, {.name = "meanwhile"});
  engine.wait(c);
  engine.push([] {}, {read(a), read(b)}, {.name = "after"});
  first.complete();
  second.complete();
  const ReadTrace trace = end_trace(engine);
  for (const char* name : {"first", "second"}) {
    EXPECT_LE(trace.op("meanwhile").end, trace.op(name).end);
    EXPECT_LE(trace.op(name).end, trace.op("after").begin);
    EXPECT_TRUE(trace.track_of(name).starts_with("async ")) << trace.track_of(name);
    EXPECT_EQ(std::count_if(trace.others.begin(), trace.others.end(),
                            [&](const auto& s) { return s.category == "call" && s.name == name; }),
              1);
  }
  EXPECT_NE(trace.track_of("first"), trace.track_of("second"));
}

TEST_P(TraceOfThreadedPolicies, AWaitInsideAnOpIsASliceWithinIt) {
  engine.trace().start();
  Gate gate;
  engine.push(
      [&] {
        engine.push([&] { gate.await(); }, {mutate(b)}, {.name = "inner"});
        engine.wait(b);
      },
      {mutate(a)}, {.name = "outer"});
  while (engine.describe_pending().find("waits inside") == std::string::npos) std::this_thread::yield();
  gate.open();
  const ReadTrace trace = end_trace(engine);
  const auto& outer = trace.op("outer");
  int waits = 0;
  for (const auto& slice : trace.others) {
    if (slice.category != "wait") continue;
    ++waits;
    EXPECT_EQ(slice.op, outer.op);
    EXPECT_EQ(slice.track, outer.track);
    EXPECT_LE(outer.begin, slice.begin);
    EXPECT_LE(slice.end, outer.end);
  }
  EXPECT_EQ(waits, 1);
  const TraceSummary summary = engine.trace().summary();
  std::chrono::nanoseconds busy{}, total{};
  for (const auto& track : summary.tracks) busy += track.busy;
  for (const auto& row : summary.ops) total += row.total;
  EXPECT_LT(busy, total) << "a wait is no work";
}

TEST_P(TraceOfEveryPolicy, OpsOfOrderedLanesAreThere) {
  const auto lane = std::make_shared<SimLane>("sim");
  const LaneId id = engine.add_lane(lane);
  engine.trace().start();
  engine.push([&] { lane->launch([] {}); }, {mutate(a)}, {.name = "issue", .lane = id});
  engine.push([&] { lane->launch([] {}); }, {read(a), mutate(b)}, {.name = "issue more", .lane = id});
  engine.push([] {}, {read(b)}, {.name = "host"});
  const ReadTrace trace = end_trace(engine);
  EXPECT_EQ(trace.ops.size(), 3u);
  EXPECT_EQ(trace.op("issue").lane, "sim");
  EXPECT_EQ(trace.track_of("issue"), "sim 1");
  EXPECT_EQ(trace.track_of("issue more"), "sim 1");
  EXPECT_NE(trace.track_of("host"), "sim 1");
  EXPECT_EQ(trace.arrows, (Arrows{{"issue", "issue more"}, {"issue more", "host"}}));
}

TEST_F(SerialTrace, NamesAreEscaped) {
  const std::string names[] = {"\"quoted\"", "back\\slash", std::string("a\tb\n\x01", 5),
                               "h\xc3\xa9l\xc3\xa9na \xe2\x86\x92 \xf0\x9f\x8c\xbe"};
  engine.trace().start();
  for (const std::string& name : names) engine.push([] {}, {}, {.name = name});
  engine.push([] {}, {}, {.name = std::string("bad \xff\xc3(\xed\xa0\x80\xc0\xaf")});
  const ReadTrace trace = read_trace(engine);
  for (const std::string& name : names) EXPECT_NO_THROW(trace.op(name));
  const std::string unknown = "\xef\xbf\xbd";
  EXPECT_NO_THROW(trace.op("bad " + unknown + unknown + "(" + unknown + unknown + unknown + unknown + unknown));
}

TEST_F(TraceOfAWorker, KnowsNothingOfWhatRanBeforeItsStartAndAfterItsStop) {
  const auto push = [&](const char* name) {
    engine.push([] {}, {mutate(a)}, {.name = std::string(name)});
    engine.wait_all();
  };
  EXPECT_TRUE(read_trace(engine).ops.empty());
  EXPECT_FALSE(engine.trace().on());
  push("before");
  engine.trace().start();
  EXPECT_TRUE(engine.trace().on());
  push("first");
  push("second");
  engine.trace().stop();
  push("after");
  engine.trace().stop();
  const ReadTrace trace = read_trace(engine);
  ASSERT_EQ(trace.ops.size(), 2u);
  EXPECT_EQ(trace.arrows, (Arrows{{"first", "second"}}));
  engine.trace().start();
  push("third");
  ASSERT_EQ(read_trace(engine).ops.size(), 1u);
  EXPECT_EQ(read_trace(engine).op("third").outcome, "ran");
}

TEST_F(TraceOfAWorker, AnOpThatRunsAtTheStartOrAtTheStopIsNotPartOfIt) {
  const auto across = [&](auto change) {
    StuckOp stuck(engine, {mutate(a)});
    change();
    stuck.let_go();
    engine.wait_all();
  };
  for (int i = 0; i < 2; ++i) {
    across([&] { engine.trace().start(); });
    engine.push([] {}, {mutate(a)}, {.name = "inside"});
    engine.wait_all();
  }
  across([&] { engine.trace().stop(); });
  const ReadTrace trace = read_trace(engine);
  ASSERT_EQ(trace.ops.size(), 1u);
  EXPECT_EQ(trace.ops[0].name, "inside");
  EXPECT_TRUE(trace.arrows.empty());
}

TEST_F(SerialTrace, NoArrowLeadsOverAnOpThatIsNotInTheTrace) {
  const Var a = engine.new_var("a");
  engine.trace().start({.max_ops_per_thread = 2});
  for (const char* name : {"one", "two", "left out"}) engine.push([] {}, {mutate(a)}, {.name = std::string(name)});
  std::jthread([&] { engine.push([] {}, {mutate(a)}, {.name = "last"}); }).join();
  const ReadTrace trace = read_trace(engine);
  EXPECT_EQ(trace.op("last").outcome, "ran");
  EXPECT_EQ(trace.left_out, 1);
  EXPECT_EQ(trace.arrows, (Arrows{{"one", "two"}}));
}

TEST_F(TraceOfAWorker, KeepsNoMoreOpsThanItMayAndSaysHowManyItLeftOut) {
  engine.trace().start({.max_ops_per_thread = 10});
  for (int i = 0; i < 100; ++i) engine.push([] {}, {mutate(a)}, {.name = "op"});
  const ReadTrace trace = end_trace(engine);
  EXPECT_EQ(trace.ops.size(), 10u);
  EXPECT_EQ(trace.left_out, 90);
  EXPECT_EQ(engine.trace().summary().left_out, 90u);
  EXPECT_NE(to_string(engine.trace().summary()).find("90 more were left out"), std::string::npos);
  engine.trace().start();
  EXPECT_EQ(read_trace(engine).left_out, 0);
}

TEST_F(TraceOfAWorker, OpsWithManyAccessesAndManyOpsFillChunks) {
  std::vector<Access> many;
  for (int i = 0; i < 5000; ++i) many.push_back(mutate(engine.new_var()));
  engine.trace().start();
  for (int i = 0; i < 2000; ++i) engine.push([] {}, {mutate(a)}, {.name = "small"});
  engine.push([] {}, many, {.name = "big"});
  engine.push([] {}, many, {.name = "bigger"});
  for (int i = 0; i < 2000; ++i) engine.push([] {}, {mutate(a)}, {.name = "small"});
  const ReadTrace trace = end_trace(engine);
  EXPECT_EQ(trace.ops.size(), 4002u);
  EXPECT_TRUE(trace.arrows.contains({"big", "bigger"}));
}

TEST_F(SerialTrace, APathThatCannotBeWrittenIsAnErrorThatNamesIt) {
  const std::string nowhere = folder.file("no/such/folder/run.json");
  expect_error<Error>([&] { engine.trace().save(nowhere); }, nowhere);
  std::filesystem::create_directories(folder.file("folder/inside"));
  expect_error<Error>([&] { engine.trace().save(folder.file("folder")); }, "folder");
  EXPECT_EQ(folder.files(), std::set<std::string>{"folder"}) << "an unfinished file was left behind";
}

TEST_F(SerialTrace, ASavedTraceTakesThePlaceOfAnEarlierOne) {
  engine.trace().start();
  engine.push([] {}, {}, {.name = "one"});
  engine.trace().save(folder.file("run.json"));
  engine.push([] {}, {}, {.name = "two"});
  engine.trace().save(folder.file("run.json"));
  EXPECT_EQ(read_trace_file(folder.file("run.json")).ops.size(), 2u);
}

TEST(Trace, MayBeStartedStoppedAndSavedWhileSeveralThreadsPush) {
  Engine engine({.policy = Policy::pool, .workers = 3});
  const Var shared = engine.new_var("shared");
  std::atomic<bool> done{false};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const Var own = engine.new_var("own");
      while (!done) {
        engine.push([] {}, {mutate(own)}, {.name = "own"});
        engine.push([] {}, {read(shared), mutate(own)}, {.name = "both"});
        engine.push_async([](OnComplete complete) { complete(); }, {mutate(shared)}, {.name = "async"});
        engine.wait(own);
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    engine.trace().start({.max_ops_per_thread = 2000});
    while (engine.trace().summary().ops.empty()) std::this_thread::yield();
    if (i % 2 == 0) engine.trace().stop();
    const ReadTrace trace = read_trace(engine);
    EXPECT_FALSE(trace.ops.empty());
    EXPECT_FALSE(to_string(engine.trace().summary()).empty());
  }
  done = true;
}

TEST_F(TraceOfAWorker, AnOpBeginsAfterTheRestOfItsWorker) {
  engine.trace().start();
  engine.push([] {}, {}, {.name = "first"});
  engine.wait_all();
  // When the worker begins to rest, it counts that nothing is pending.
  const auto rests = [&] { return read_trace(engine).counters.at("pending ops"); };
  while (rests().size() < 3 || rests().back().count != 0) std::this_thread::yield();
  const std::int64_t rest = rests().back().at;
  engine.push([] {}, {}, {.name = "second"});
  const ReadTrace trace = end_trace(engine);
  EXPECT_LE(trace.op("first").end, rest);
  EXPECT_LE(rest, trace.op("second").begin);
}

TEST_F(TraceOfAWorker, CountsPendingAndReadyOpsAndBytesThatAreHeld) {
  StuckOp stuck(engine, {mutate(a)});
  for (const int priority : {0, 1, -1, 2, 0}) engine.push([] {}, {mutate(a)}, {.priority = priority});
  for (const int priority : {1, -1, 0}) engine.push([] {}, {}, {.priority = priority, .bytes = 1000});
  engine.trace().start();  // counts at once
  stuck.let_go();
  const ReadTrace trace = end_trace(engine);  // and at the end
  const auto& pending = trace.counters.at("pending ops");
  EXPECT_EQ(pending.front().count, 9);
  EXPECT_EQ(pending.back().count, 0);
  const auto& ready = trace.counters.at("ready ops");
  EXPECT_EQ(ready.size(), pending.size());
  EXPECT_EQ(ready.front().count, 3);
  EXPECT_EQ(ready.back().count, 0);
  EXPECT_EQ(trace.counters.at("pending bytes").front().count, 3000);
  EXPECT_EQ(trace.counters.at("pending bytes").back().count, 0);
}

/// Whether ops are pushed together, or each when the one before has ended.
TEST(Trace, ArrowsLeadFromKindToKindOfSharedAccess) {
  for (const bool waits : {false, true}) {
    Engine engine({.policy = Policy::pool, .workers = 2});
    const Var a = engine.new_var("a");
    engine.trace().start();
    const std::pair<std::string, Access> all[] = {
        {"write", mutate(a)},   {"read", read(a)},        {"add", commute(a)},    {"add", commute(a)},
        {"rewrite", mutate(a)}, {"add more", commute(a)}, {"read again", read(a)}};
    for (const auto& [name, access] : all) {
      engine.push([] {}, {access}, {.name = name});
      if (waits || name == "read again") engine.wait_all();
    }
    const Arrows expected = {
        {"write", "read"}, {"read", "add"}, {"add", "rewrite"}, {"rewrite", "add more"}, {"add more", "read again"}};
    EXPECT_EQ(read_trace(engine).arrows, expected) << waits;
  }
}

TEST(Trace, EachThreadIsATrackWithAName) {
  const std::pair<Policy, const char*> all[] = {
      {Policy::pool, "worker 1"}, {Policy::per_device, "host 1"}, {Policy::serial, "thread 1"}};
  for (const auto& [policy, track] : all) {
    Engine engine({.policy = policy, .workers = 1});
    const LaneId copies = engine.add_lane(HostLane{.name = "copies"});
    engine.trace().start();
    engine.push([] {}, {}, {.name = "op"});
    engine.push([] {}, {}, {.name = "copy", .lane = copies});
    const ReadTrace trace = end_trace(engine);
    EXPECT_EQ(trace.track_of("op"), track);
    if (policy == Policy::per_device) {
      EXPECT_EQ(trace.track_of("copy"), "copies 1");
    }
  }
}

}  // namespace
}  // namespace windrow::testing
