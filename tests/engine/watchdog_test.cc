// What is pending can be asked for, and is told when nothing finishes.
#include <deque>
#include <sstream>

#include "sim_device.h"
#include "support.h"

namespace windrow::testing {
namespace {

/// Reports in the order they came.
class Reports {
 public:
  std::function<void(std::string)> sink() {
    return [this](std::string text) {
      std::lock_guard lock(mutex_);
      texts_.push_back(std::move(text));
      came_.notify_all();
    };
  }
  /// The next one; empty if none comes.
  std::string next() {
    std::unique_lock lock(mutex_);
    if (!came_.wait_for(lock, patience, [&] { return !texts_.empty(); })) return {};
    std::string text = texts_.front();
    texts_.pop_front();
    return text;
  }
  std::size_t count() {
    std::lock_guard lock(mutex_);
    return texts_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::string> texts_;
};

bool holds_in_order(std::string_view line, std::string_view pieces) {
  while (true) {
    const std::size_t star = pieces.find('*');
    const std::string_view piece = pieces.substr(0, star);
    const std::size_t at = line.find(piece);
    if (at == std::string_view::npos || star == std::string_view::npos) return at != std::string_view::npos;
    line.remove_prefix(at + piece.size());
    pieces.remove_prefix(star + 1);
  }
}

/// How many lines of the text hold these pieces, of which '*' parts two, in this order.
int lines_with(const std::string& text, std::string_view pieces) {
  std::istringstream lines(text);
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += holds_in_order(line, pieces);
  return count;
}
#define EXPECT_LINE(text, pieces) EXPECT_GT(lines_with(text, pieces), 0) << text

using PendingOfAWorker = PoolOf<1>;
using PendingOfTwoWorkers = PoolOf<2>;

class WatchdogOfThreadedPolicies : public EveryPolicy {};
WINDROW_THREADED_POLICIES(WatchdogOfThreadedPolicies);

TEST_P(WatchdogOfThreadedPolicies, TellsOfAStuckOpItsVariableAndWhoWaitsForIt) {
  Reports reports;
  Engine engine(options({.watchdog = 5ms, .on_silence = reports.sink()}));
  const Var a = engine.new_var("weights");
  StuckOp stuck(engine, {mutate(a)});
  engine.push([] {}, {read(a)}, {.name = "reader"});
  const std::string report = reports.next();
  stuck.let_go();
  engine.wait_all();
  EXPECT_LINE(report, "no op has finished for 0.005 s; * pending");
  // On a busy machine the report may come before a worker has taken the op up.
  const bool runs = report.find("no worker has taken it up") == std::string::npos;
  EXPECT_LINE(report, runs ? "op 'stuck' (pushed at *support.h:*) runs" : "op 'stuck' * is ready*");
  if (report.find("2 ops are pending") != std::string::npos) {
    EXPECT_LINE(report, "op 'reader' *waits for variable 'weights', held by op 'stuck' *" +
                            std::string(runs ? ", which runs" : ""));
  }
}

TEST(Watchdog, TellsOnceOfEachSilence) {
  Reports reports;
  Engine engine({.policy = Policy::pool, .workers = 1, .watchdog = 2ms, .on_silence = reports.sink()});
  for (int i = 0; i < 3; ++i) {
    StuckOp stuck(engine, {});
    EXPECT_FALSE(reports.next().empty());
    std::this_thread::sleep_for(20ms);  // several more of its looks
    EXPECT_EQ(reports.count(), 0u);
    stuck.let_go();
    engine.wait_all();
  }
}

TEST(Watchdog, IsSilentWhileNothingIsPending) {
  Reports reports;
  Engine engine({.policy = Policy::pool, .workers = 1, .watchdog = 1ms, .on_silence = reports.sink()});
  const Var a = engine.new_var("a");
  engine.push([] {}, {mutate(a)});
  engine.wait_all();
  while (reports.count() > 0) reports.next();  // if the machine was slow
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(reports.count(), 0u);
}

TEST(Watchdog, WaitsOfThreadsAreNoProgress) {
  Reports reports;
  Engine engine({.policy = Policy::pool, .workers = 1, .watchdog = 50ms, .on_silence = reports.sink()});
  const Var a = engine.new_var("a");
  std::atomic<bool> done{false};
  Gate polls;
  std::jthread poller([&] {
    while (!done) {
      engine.wait(a);
      polls.open();
    }
  });
  polls.await();
  StuckOp stuck(engine, {});
  EXPECT_FALSE(reports.next().empty());
  done = true;
}

TEST(Watchdog, ACallbackThatThrowsDoesNoHarm) {
  std::atomic<int> calls{0};
  Engine engine({.policy = Policy::pool, .workers = 1, .watchdog = 1ms, .on_silence = [&](std::string) {
                   ++calls;
                   throw std::runtime_error("not now");
                 }});
  for (int i = 1; i < 3; ++i) {
    StuckOp stuck(engine, {});
    while (calls < i) std::this_thread::yield();
    stuck.let_go();
    engine.wait_all();
  }
}

TEST(Watchdog, EndsWithItsEngineHoweverPatientItIs) {
  for (const auto span : {std::chrono::nanoseconds(24h), std::chrono::nanoseconds::max()}) {
    Engine engine({.policy = Policy::pool, .workers = 1, .watchdog = span});
    engine.push([] {}, {});
  }
  Engine never_used({.watchdog = 1ms});
}

TEST(Watchdog, TellsWhileShutdownWaits) {
  Reports reports;
  Engine engine({.policy = Policy::pool, .workers = 1, .watchdog = 2ms, .on_silence = reports.sink()});
  StuckOp stuck(engine, {});
  std::jthread ends([&] { engine.shutdown(); });
  EXPECT_FALSE(reports.next().empty());
  stuck.let_go();
}

TEST(Watchdog, ANegativeSpanIsMisuse) { EXPECT_THROW(Engine({.watchdog = -1ns}), MisuseError); }

TEST_F(PendingOfAWorker, OfNothingSaysSo) {
  EXPECT_EQ(engine.describe_pending(), "no op is pending");
  engine.push([] {}, {});
  engine.wait_all();
  EXPECT_EQ(engine.describe_pending(), "no op is pending");
}

TEST_F(PendingOfTwoWorkers, NamesWhoHoldsWhatAnOpWaitsFor) {
  const Var nameless = engine.new_var();
  StuckOp stuck(engine, {read(a), mutate(nameless)});
  engine.push([] {}, {mutate(a), mutate(b)}, {.name = "writer"});
  engine.push([] {}, {read(b)}, {.name = "last"});
  engine.push([] {}, {read(nameless)}, {.name = "other"});
  engine.push([] {}, {read(a)}, {.name = "behind"});
  const std::string text = engine.describe_pending();
  EXPECT_TRUE(text.starts_with("5 ops are pending:\n  op 'stuck' (")) << text;
  EXPECT_LINE(text, "op 'stuck' (*) runs");
  EXPECT_LINE(text, "op 'writer' (*) waits for variable 'a', held by op 'stuck' (*), which runs");
  EXPECT_LINE(text, "op 'last' (*) waits for variable 'b', held by op 'writer' (*), which waits for variable 'a'");
  EXPECT_LINE(text, "op 'other' (*) waits for a variable without a name, held by op 'stuck'");
  EXPECT_LINE(text, "op 'behind' (*) waits for variable 'a', held by op 'stuck'");
}

TEST_F(PendingOfTwoWorkers, NamesWhoHasItsTurnAmongOpsThatCommute) {
  StuckOp first(engine, {commute(a)}, "first");
  engine.push([] {}, {commute(a)}, {.name = "second"});
  engine.push([] {}, {read(a)}, {.name = "reader"});
  engine.push([] {}, {commute(a)}, {.name = "third"});
  const std::string text = engine.describe_pending();
  for (const char* name : {"second", "reader", "third"}) {
    EXPECT_LINE(text, "op '" + std::string(name) + "' (*) waits for variable 'a', held by op 'first' (*), which runs");
  }
}

TEST_F(PendingOfAWorker, TellsOpsThatAreReadyFromThoseThatRun) {
  StuckOp stuck(engine, {read(a)});
  engine.push([] {}, {read(a)}, {.name = "ready"});
  EXPECT_LINE(engine.describe_pending(), "op 'stuck' (*) runs");
  EXPECT_LINE(engine.describe_pending(), "op 'ready' (*) is ready, and no worker has taken it up");
}

TEST(Pending, TellsOfAnOnCompleteThatWasNotCalled) {
  Engine engine({.policy = Policy::serial});
  HeldOp held(engine, {}, "async");
  EXPECT_LINE(engine.describe_pending(), "op 'async' (*) has returned, and its OnComplete was not called");
  held.complete();
  EXPECT_EQ(engine.describe_pending(), "no op is pending");
}

TEST_F(PendingOfAWorker, TellsOfAnOpThatWaitsForALane) {
  const auto lane = std::make_shared<SimLane>("sim");
  const LaneId id = engine.add_lane(lane);
  lane->hold();
  engine.push([&] { lane->launch([] {}); }, {mutate(a), mutate(b)}, {.name = "issue", .lane = id});
  engine.push([] {}, {read(a)}, {.name = "one"});
  engine.push([] {}, {mutate(b)}, {.name = "another"});
  while (lines_with(engine.describe_pending(), "to reach a point") != 2) std::this_thread::yield();
  EXPECT_LINE(engine.describe_pending(), "op 'one' (*) waits for a lane to reach a point");
  StuckOp stuck(engine, {});
  lane->let_go();
  while (lines_with(engine.describe_pending(), "op 'one' * is ready") == 0) std::this_thread::yield();
  while (lines_with(engine.describe_pending(), "op 'another' * is ready") == 0) std::this_thread::yield();
}

TEST_F(PendingOfTwoWorkers, TellsOfAWaitInsideAnOpAndWhatItIsFor) {
  StuckOp stuck(engine, {mutate(a)});
  engine.push([&] { engine.wait(a); }, {}, {.name = "waiter"});
  const std::string_view expected =
      "op 'waiter' (*) waits inside (at *watchdog_test.cc:*): it waits for variable 'a', held by op 'stuck' (*), "
      "which runs";
  while (lines_with(engine.describe_pending(), expected) == 0) std::this_thread::yield();
  EXPECT_TRUE(engine.describe_pending().starts_with("2 ops are pending"));
  stuck.let_go();
  engine.wait_all();
}

TEST_F(PendingOfTwoWorkers, AnOpRunsOnAfterItsWait) {
  Gate waited, go;
  StuckOp stuck(engine, {mutate(a)});
  engine.push(
      [&] {
        EXPECT_FALSE(engine.wait_for({read(a)}, 1ms));
        waited.open();
        go.await();
      },
      {}, {.name = "waiter"});
  waited.await();
  EXPECT_LINE(engine.describe_pending(), "op 'waiter' (*) runs");
  go.open();
}

TEST_F(PendingOfAWorker, OfManyOpsNamesTheFirstTen) {
  StuckOp stuck(engine, {mutate(a)});
  for (int i = 0; i < 100; ++i) engine.push([] {}, {mutate(a)}, {.name = "next"});
  const std::string text = engine.describe_pending();
  EXPECT_TRUE(text.starts_with("101 ops are pending:\n  op 'stuck'")) << text;
  EXPECT_TRUE(text.ends_with("\n  and 91 more")) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11);
}

TEST_F(PendingOfTwoWorkers, MayBeCalledInsideAnOpAndWhileOthersPush) {
  std::atomic<bool> done{false};
  std::jthread pusher([&] {
    while (!done) engine.push([] {}, {mutate(a)}, {.name = "quick"});
  });
  std::string text;
  for (int i = 0; i < 20; ++i) {
    engine.push([&] { text = engine.describe_pending(); }, {mutate(b)}, {.name = "asks"});
    engine.wait(b);
    EXPECT_LINE(text, "op 'asks' (*) runs");
  }
  done = true;
}

TEST(DeviceThatStandsStill, IsToldOfWithTheOpAndTheLane) {
  Reports reports;
  const auto lane = std::make_shared<SimLane>("one");
  Engine engine({.policy = Policy::pool, .workers = 1, .watchdog = 5ms, .on_silence = reports.sink()});
  const LaneId on_one = engine.add_lane(lane);
  const Var a = engine.new_var("a");
  lane->hold();
  engine.push([&] { lane->launch([] {}); }, {mutate(a)}, {.name = "kernel", .lane = on_one});
  engine.push([&] { lane->launch([] {}); }, {read(a)}, {.name = "copy", .lane = on_one});
  std::string told = reports.next();
  while (lines_with(told, "ready and waits for its turn") > 0) told = reports.next();  // if the machine was slow
  EXPECT_LINE(told, "lane 'one' has to reach 2 points, that of op 'kernel' (pushed at *) first");
  EXPECT_FALSE(engine.wait_for({read(a)}, 1ms));
  EXPECT_LINE(engine.describe_pending(), "lane 'one' has to reach 2 points, that of op 'kernel'");
  lane->let_go();
  engine.wait({mutate(a)});
  EXPECT_EQ(engine.describe_pending(), "no op is pending");
}

}  // namespace
}  // namespace windrow::testing
