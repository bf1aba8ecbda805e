// Ops that have no more time: PushOptions::deadline, should_stop(), Engine::shutdown_for().
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <span>

#include "sim_device.h"
#include "support.h"

namespace windrow::testing {
namespace {

using Clock = std::chrono::steady_clock;

class DeadlineTest : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(DeadlineTest);

/// Returns once the op should stop; within the limit of all tests.
bool wait_until_stopped(const auto& op) {
  return comes_true([&] { return op.should_stop(); });
}

TEST_P(DeadlineTest, AnOpThatHasNotBegunByThenDoesNotRun) {
  int ran = 0;
  const PushOptions late{.name = "late", .deadline = Clock::now() - 1s};
  engine.push([&] { ++ran; }, {mutate(a)}, late);
  expect_error<OpError>([&] { engine.wait(a); }, {"op 'late' (pushed at ", "its deadline had passed by "});
  EXPECT_EQ(engine.version(a), 1u) << "it failed, which counts";
  engine.push_async([&](OnComplete done) { ++ran, done(); }, {overwrite(b)}, late);
  EXPECT_THROW(engine.wait(b), OpError);
  engine.push(engine.declare([&] { ++ran; }, {overwrite(b)}, late));
  expect_root<DeadlineError>([&] { engine.wait(b); });
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(engine.stats().failed, 3u);
  EXPECT_EQ(engine.stats().cancelled, 0u);
}

/// Calls `attempt` with longer and longer times, until it returns true: a loaded machine may begin an op late.
bool given_time(const auto& attempt) {
  for (std::chrono::nanoseconds time = 20ms; time < patience; time *= 4) {
    if (attempt(time)) return true;
  }
  return false;
}

TEST_P(DeadlineTest, AnOpThatEndsLaterPoisonsWhatItWrites) {
  for (const bool async : {false, true}) {
    EXPECT_TRUE(given_time([&](std::chrono::nanoseconds time) {
      bool begun = false, stopped = false, read_on = false;
      const Var x = engine.new_var(), y = engine.new_var();
      const PushOptions in_time{.deadline = Clock::now() + time};
      std::jthread completes;
      const auto run = [&](const auto& op) { begun = true, stopped = wait_until_stopped(op); };
      if (async) {
        engine.push_async(
            [&](OnComplete done) {
              completes = std::jthread([&run, done = std::move(done)]() mutable { run(done), done(); });
            },
            {mutate(x)}, in_time);
      } else {
        engine.push([&](OpContext& op) { run(op); }, {mutate(x)}, in_time);
      }
      engine.push([&] { read_on = true; }, {read(x), mutate(y)});
      const std::string text = error_of<OpError>([&] { engine.wait(y); });
      if (completes.joinable()) completes.join();
      EXPECT_FALSE(read_on);
      if (!begun) return false;
      EXPECT_NE(text.find(" after its deadline"), text.npos) << text;
      EXPECT_TRUE(stopped);
      return true;
    }));
  }
}

TEST_P(DeadlineTest, WithinItsTimeAnOpIsAsAnyOther) {
  int ran = 0;
  const PushOptions in_time{.deadline = Clock::now() + std::chrono::hours(1)};
  engine.push([&](OpContext& op) { ran += op.should_stop() ? 100 : 1; }, {mutate(a)}, in_time);
  engine.push([&](OpContext& op) { ran += op.should_stop() ? 100 : 1; }, {mutate(a)});
  engine.push_async([&](OnComplete done) { ran += done.should_stop() ? 100 : 1, done(); }, {mutate(a)}, in_time);
  engine.push(engine.declare([&] { ++ran; }, {mutate(a)}, in_time));
  engine.wait_all();
  EXPECT_EQ(ran, 4);
  EXPECT_EQ(engine.version(a), 4u);
}

TEST_P(DeadlineTest, OpsOfGraphsAndLanesHaveDeadlines) {
  int ran = 0;
  const Graph graph =
      engine.capture([&] { engine.push([&] { ++ran; }, {mutate(a)}, {.deadline = Clock::now() - 1s}); });
  graph.launch();
  const auto lane = std::make_shared<SimLane>("lane");
  engine.push([&] { ++ran; }, {mutate(b)}, {.lane = engine.add_lane(lane), .deadline = Clock::now() - 1s});
  for (const Var var : {a, b}) expect_error<OpError>([&] { engine.wait(var); }, "its deadline had passed by ");
  EXPECT_EQ(ran, 0);
}

TEST_P(DeadlineTest, ARunningOpSeesThatItsStopIsRequested) {
  std::stop_source source;
  bool before = true;
  engine.push(
      [&](OpContext& op) {
        before = op.should_stop();
        source.request_stop();
        if (op.should_stop()) throw Cancelled();
      },
      {mutate(a)}, {.stop = source.get_token()});
  EXPECT_TRUE(error_of<OpError>([&] { engine.wait(a); }).ends_with(" was cancelled"));
  EXPECT_FALSE(before);
}

TEST_P(DeadlineTest, RunAlwaysRetireAndHealHaveNone) {
  int ran = 0;
  const PushOptions late{.run_always = true, .deadline = Clock::now() - 1s};
  engine.push([&](OpContext& op) { ran += op.should_stop() ? 100 : 1; }, {mutate(a)}, late);
  engine.heal(a, {.deadline = Clock::now() - 1s});
  engine.retire(a, [&] { ++ran; }, {.deadline = Clock::now() - 1s});
  engine.wait_all();
  EXPECT_EQ(ran, 2);
}

TEST_P(DeadlineTest, ShutdownForEndsAsShutdownDoesIfOpsFinish) {
  int ran = 0;
  bool told = false;
  engine.push([&] { ++ran; }, {mutate(a)});
  EXPECT_TRUE(engine.shutdown_for(patience, [&](const std::string&) { told = true; }));
  EXPECT_EQ(ran, 1);
  EXPECT_FALSE(told);
  EXPECT_THROW(engine.push([] {}, {mutate(a)}), MisuseError);
  EXPECT_TRUE(engine.shutdown_for(0s));
  EXPECT_THROW(engine.shutdown_for(-1s), MisuseError);
}

/// Gives up soon; what is called off by then stays so. Then ends the engine.
void shut_down_soon(Engine& engine, const std::function<void(std::string)>& abort) {
  if (engine.shutdown_for(20ms, abort)) return;
  EXPECT_TRUE(engine.shutdown_for(patience)) << engine.describe_pending();
}

TEST_P(DeadlineTest, ShutdownForTellsWhatIsPendingAndCallsOffWhatHasNotBegun) {
  int ran = 0;
  bool freed = false, retired = false;
  HeldOp held(engine, {mutate(a)}, "network");
  engine.push([&] { ++ran; }, {mutate(a)}, {.name = "behind"});
  engine.push_async([&](OnComplete done) { ++ran, done(); }, {mutate(a), mutate(b)});
  engine.push([&](OpContext& op) { freed = op.failure() != nullptr; }, {mutate(b)}, {.run_always = true});
  engine.retire(b, [&] { retired = true; });
  std::string text;
  shut_down_soon(engine, [&](std::string pending) {
    text = std::move(pending);
    held.complete();
  });
  EXPECT_NE(text.find("5 ops are pending:"), text.npos) << text;
  EXPECT_NE(text.find("op 'network' "), text.npos) << text;
  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(freed);
  EXPECT_TRUE(retired);
  EXPECT_EQ(engine.stats().cancelled, 1u);
  EXPECT_EQ(engine.stats().pending, 0u);
}

TEST_P(DeadlineTest, ItCallsOffOpsOfGraphsAndLanes) {
  int ran = 0;
  const LaneId lane = engine.add_lane(std::make_shared<SimLane>("lane"));
  const Graph graph = engine.capture([&] {
    engine.push([&] { ++ran; }, {mutate(a)});
    engine.push_async([&](OnComplete done) { ++ran, done(); }, {mutate(a)});
  });
  HeldOp held(engine, {mutate(a)}), held_too(engine, {mutate(b)});
  graph.launch();
  engine.push([&] { ++ran; }, {mutate(b)}, {.lane = lane});
  shut_down_soon(engine, [&](const std::string&) { held.complete(), held_too.complete(); });
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(engine.stats().cancelled, 2u);  // the other op of the graph is skipped
  EXPECT_EQ(engine.failures(), 3u);
}

TEST(CheckedDeadlineTest, ItCallsOffOpsThatAreChecked) {
  Engine engine({.check = true});
  const Var a = engine.new_var("a");
  int value = 0, ran = 0;
  engine.watch(a, std::as_writable_bytes(std::span(&value, 1)));
  HeldOp held(engine, {mutate(a)});
  engine.push([&] { ++ran; }, {mutate(a)});
  engine.retire(a, [&] { value = 1; });
  shut_down_soon(engine, [&](const std::string&) { held.complete(); });
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(value, 1);
}

TEST_P(DeadlineTest, WhatItCallsOffIsToldOnceAtTheEnd) {
  const std::string told = stderr_of([&] {
    Engine ended(options());
    const Var x = ended.new_var("x"), y = ended.new_var("y");
    HeldOp held(ended, {mutate(x)}), held_too(ended, {mutate(y)});
    for (const Var var : {x, y}) ended.push([] {}, {mutate(var)}, {.name = "behind"});
    shut_down_soon(ended, [&](const std::string&) { held.complete(), held_too.complete(); });
  });
  const std::size_t first = told.find(" was cancelled: called off by shutdown_for");
  EXPECT_NE(first, told.npos) << told;
  EXPECT_EQ(told.find("called off by shutdown_for", first + 20), told.npos) << told;
}

TEST_P(DeadlineTest, ShutdownForAsksRunningOpsToStop) {
  std::atomic<bool> begun = false, stopped = false;
  std::thread pushes([&] {  // where policy serial runs it
    engine.push(
        [&](OpContext& op) {
          begun = true;
          stopped = wait_until_stopped(op);
        },
        {mutate(a)});
  });
  while (!begun) std::this_thread::yield();
  shut_down_soon(engine, [](const std::string&) {});
  pushes.join();
  EXPECT_TRUE(stopped);
}

bool sleeps(long thread) {
  std::string stat;
  std::getline(std::ifstream("/proc/self/task/" + std::to_string(thread) + "/stat"), stat);
  return stat.find(") S") != stat.npos;
}

TEST_P(DeadlineTest, ShutdownForReturnsAlthoughAnOpNeverEnds) {
  HeldOp held(engine, {mutate(a)});
  EXPECT_FALSE(engine.shutdown_for(20ms, [](const std::string&) {}));
  EXPECT_THROW(engine.push([] {}, {mutate(b)}), MisuseError);
  std::atomic<long> id = 0;
  std::thread waits([&] {
    id = syscall(SYS_gettid);
    engine.shutdown();
  });
  EXPECT_TRUE(comes_true([&] { return id != 0 && sleeps(id); }));
  EXPECT_FALSE(engine.shutdown_for(20ms, [](const std::string&) {}));  // although another thread shuts down
  EXPECT_THROW(engine.shutdown_for(0s, [](const std::string&) { throw Error("the hook fails"); }), Error);
  held.complete();
  waits.join();
  EXPECT_TRUE(engine.shutdown_for(patience));
}

/// The engine is leaked: its threads go on, and what completes the op later still finds it.
TEST_P(DeadlineTest, AnEngineThatIsLeftBehindRunsNothingMore) {
  static std::atomic<int> ran, reports;  // outlive the engine
  ran = reports = 0;
  auto left =
      std::make_unique<Engine>(options({.watchdog = 10ms, .on_silence = [](const std::string&) { ++reports; }}));
  const Var x = left->new_var("x"), y = left->new_var("y"), z = left->new_var("z");
  HeldOp held(*left, {mutate(x)}), held_too(*left, {mutate(y)}), held_longer(*left, {mutate(z)});
  left->push([] { throw Error("a failure"); }, {}, {.name = "fails"});
  left->push([](OpContext&) { ++ran; }, {mutate(x)}, {.run_always = true});
  left->push_async([](OnComplete done) { ++ran, done(); }, {mutate(y)}, {.run_always = true});
  left->retire(x, [] { ++ran; });
  const std::string told = stderr_of([&] {
    EXPECT_FALSE(left->shutdown_for(20ms, [](const std::string&) {}));
    left.reset();
  });
  EXPECT_NE(told.find("an engine is leaked"), told.npos) << told;
  EXPECT_NE(told.find("nobody waited for this: op 'fails' "), told.npos) << told;
  const int before = reports;
  held.complete();  // progress, after which a watchdog would report again
  held_too.complete();
  std::this_thread::sleep_for(100ms);  // nothing tells that the ops have ended
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(reports, before);
  held_longer.complete();
}

TEST_P(DeadlineTest, AnEngineWhoseOpsHaveEndedSinceIsNotLeftBehind) {
  const auto owned = std::make_shared<int>();
  auto ended = std::make_unique<Engine>(options({.on_thread_start = [owned] {}}));
  const Var x = ended->new_var("x");
  HeldOp held(*ended, {mutate(x)});
  EXPECT_FALSE(ended->shutdown_for(0s, [](const std::string&) {}));
  held.complete();
  EXPECT_TRUE(comes_true([&] { return ended->stats().pending == 0; }));
  EXPECT_GT(owned.use_count(), 1);
  ended.reset();
  EXPECT_EQ(owned.use_count(), 1);
}

TEST_P(DeadlineTest, ShutdownForIsRefusedInsideAnOp) {
  engine.push([&] { engine.shutdown_for(1s); }, {mutate(a)});
  expect_error<OpError>([&] { engine.wait(a); }, "would wait for that op itself");
}

// Ops that are called off: PushOptions::stop. The oracle (random_program.h) compares which ops are cancelled.

class CancelTest : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(CancelTest);

TEST_P(CancelTest, AnOpWhoseStopIsRequestedDoesNotRunAndSaysSo) {
  bool ran = false;
  const int line = __LINE__ + 1;
  engine.push([&] { ran = true; }, {mutate(a)}, {.name = "load", .stop = stopped()});
  const std::string text =
      "op 'load' (pushed at " + std::string(__FILE__) + ":" + std::to_string(line) + ") was cancelled";
  EXPECT_EQ(error_of<OpError>([&] { engine.wait(a); }), text);
  EXPECT_EQ(error_of<OpError>([&] { engine.wait_all(); }), text);
  EXPECT_FALSE(ran);
  EXPECT_EQ(engine.version(a), 0u);
}

TEST_P(CancelTest, OptionsThatAreStoredAndDeclaredOpsKeepTheirToken) {
  std::stop_source source;
  std::atomic<int> ran = 0;
  const PushOptions first{.name = "first", .stop = source.get_token()};
  const PushOptions second = first;
  DeclaredOp declared;
  {
    const std::stop_token gone_after_declare = source.get_token();
    declared = engine.declare([&] { ++ran; }, {mutate(c)}, {.name = "declared", .stop = gone_after_declare});
  }
  engine.push([&] { ++ran; }, {mutate(a)}, first);
  engine.push(declared);
  engine.wait({read(a), read(c)});
  source.request_stop();
  engine.push([&] { ++ran; }, {mutate(b)}, second);
  engine.push(declared);
  EXPECT_THROW(engine.wait(b), OpError);
  EXPECT_THROW(engine.wait(c), OpError);
  EXPECT_EQ(ran, 2);
}

TEST_P(CancelTest, SuccessorsAreSkippedAndTellTheCause) {
  engine.push([] {}, {mutate(a)}, {.name = "load", .stop = stopped()});
  engine.push([] { ADD_FAILURE(); }, {read(a), mutate(b)}, {.name = "scale"});
  expect_error<OpError>([&] { engine.wait(b); },
                        {"op 'scale' (pushed at ", " was skipped because op 'load' (pushed at ", " was cancelled"});
  EXPECT_EQ(expect_root<Cancelled>([&] { engine.wait(b); })->root().kind, Failure::Kind::cancelled);
}

TEST_P(CancelTest, TheCapturesOfACancelledOpGoBeforeItsSuccessorsRun) {
  auto capture = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = capture;
  bool gone = false;
  engine.push([capture = std::move(capture)] {}, {mutate(a)}, {.stop = stopped()});
  engine.push([&] { gone = watch.expired(); }, {mutate(a)}, {.run_always = true});
  EXPECT_THROW(engine.wait_all(), OpError);
  EXPECT_TRUE(gone);
}

}  // namespace
}  // namespace windrow::testing
