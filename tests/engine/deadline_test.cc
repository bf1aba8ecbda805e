// Ops that have no more time: PushOptions::deadline, should_stop(), Engine::shutdown_for().
#include <atomic>
#include <optional>
#include <stop_token>
#include <thread>

#include "support.h"

namespace windrow::testing {
namespace {

using Clock = std::chrono::steady_clock;

class DeadlineTest : public EveryPolicy {
 protected:
  Engine engine{options()};
  Var a = engine.new_var("a"), b = engine.new_var("b");
};
WINDROW_EVERY_POLICY(DeadlineTest);

/// Returns once the op should stop; within the limit of all tests.
bool wait_until_stopped(const auto& op) {
  for (const auto begun = Clock::now(); Clock::now() - begun < patience;) {
    if (op.should_stop()) return true;
    std::this_thread::yield();
  }
  return false;
}

TEST_P(DeadlineTest, AnOpThatHasNotBegunByThenDoesNotRun) {
  int ran = 0;
  const PushOptions late{.name = "late", .deadline = Clock::now() - 1s};
  engine.push([&] { ++ran; }, {mutate(a)}, late);
  const std::string text = error_of<OpError>([&] { engine.wait(a); });
  EXPECT_NE(text.find("op 'late' (pushed at "), text.npos) << text;
  EXPECT_NE(text.find("its deadline had passed by "), text.npos) << text;
  EXPECT_EQ(engine.version(a), 1u) << "it failed, which counts";
  engine.push_async([&](OnComplete done) { ++ran, done(); }, {overwrite(b)}, late);
  EXPECT_THROW(engine.wait(b), OpError);
  engine.push(engine.declare([&] { ++ran; }, {overwrite(b)}, late));
  try {
    engine.wait(b);
    ADD_FAILURE();
  } catch (const OpError& e) {
    EXPECT_THROW(e.rethrow_root(), DeadlineError);
  }
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(engine.stats().failed, 3u);
  EXPECT_EQ(engine.stats().cancelled, 0u);
}

TEST_P(DeadlineTest, AnOpThatReturnsLaterPoisonsWhatItWrites) {
  bool stopped = false, read_on = false;
  engine.push([&](OpContext& op) { stopped = wait_until_stopped(op); }, {mutate(a)},
              {.deadline = Clock::now() + 500ms});
  engine.push([&] { read_on = true; }, {read(a), mutate(b)});
  const std::string text = error_of<OpError>([&] { engine.wait(b); });
  EXPECT_NE(text.find(" after its deadline"), text.npos) << text;
  EXPECT_TRUE(stopped);
  EXPECT_FALSE(read_on);
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

TEST_P(DeadlineTest, AnAsynchronousOpMustCompleteByThen) {
  std::thread completes;
  bool stopped = false;
  engine.push_async(
      [&](OnComplete done) {
        completes = std::thread([&stopped, done = std::move(done)]() mutable {
          stopped = wait_until_stopped(done);
          done();
        });
      },
      {mutate(a)}, {.deadline = Clock::now() + 500ms});
  const std::string text = error_of<OpError>([&] { engine.wait(a); });
  completes.join();
  EXPECT_NE(text.find(" after its deadline"), text.npos) << text;
  EXPECT_TRUE(stopped);
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

TEST_P(DeadlineTest, ShutdownForTellsWhatIsPendingAndCallsOffWhatHasNotBegun) {
  std::optional<OnComplete> held;
  int ran = 0;
  bool freed = false;
  const Var c = engine.new_var("c");
  engine.push_async([&](OnComplete done) { held.emplace(std::move(done)); }, {mutate(a)}, {.name = "network"});
  engine.push([&] { ++ran; }, {mutate(a)}, {.name = "behind"});
  engine.push_async([&](OnComplete done) { ++ran, done(); }, {mutate(a), mutate(b)});
  engine.push([&](OpContext& op) { freed = op.failure() != nullptr; }, {mutate(b)}, {.run_always = true});
  engine.retire(c);
  std::string text;
  EXPECT_TRUE(engine.shutdown_for(500ms, [&](std::string pending) {
    text = std::move(pending);
    (*held)();
  }));
  EXPECT_NE(text.find("4 ops are pending:"), text.npos) << text;
  EXPECT_NE(text.find("op 'network' "), text.npos) << text;
  EXPECT_EQ(ran, 0);
  EXPECT_TRUE(freed);
  EXPECT_EQ(engine.stats().cancelled, 1u);
  EXPECT_EQ(engine.stats().pending, 0u);
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
  EXPECT_TRUE(engine.shutdown_for(500ms, [](const std::string&) {}));
  pushes.join();
  EXPECT_TRUE(stopped);
}

TEST_P(DeadlineTest, ShutdownForReturnsAlthoughAnOpNeverEnds) {
  std::optional<OnComplete> held;
  engine.push_async([&](OnComplete done) { held.emplace(std::move(done)); }, {mutate(a)});
  EXPECT_FALSE(engine.shutdown_for(20ms, [](const std::string&) {}));
  EXPECT_THROW(engine.push([] {}, {mutate(b)}), MisuseError);
  std::thread waits([&] { engine.shutdown(); });
  EXPECT_FALSE(engine.shutdown_for(20ms, [](const std::string&) {}));  // although another thread shuts down
  EXPECT_THROW(engine.shutdown_for(0s, [](const std::string&) { throw Error("the hook fails"); }), Error);
  (*held)();
  waits.join();
  EXPECT_TRUE(engine.shutdown_for(patience));
}

/// The engine is leaked: its threads go on, and what completes the op later still finds it.
TEST_P(DeadlineTest, AnEngineThatShutdownForHasLeftBehindDoesNotWaitAtItsEnd) {
  std::optional<OnComplete> held;
  auto left = std::make_unique<Engine>(options());
  const Var var = left->new_var("var");
  left->push_async([&](OnComplete done) { held.emplace(std::move(done)); }, {mutate(var)});
  EXPECT_FALSE(left->shutdown_for(20ms, [](const std::string&) {}));
  left.reset();
  (*held)();
}

TEST_P(DeadlineTest, ShutdownForIsRefusedInsideAnOp) {
  engine.push([&] { engine.shutdown_for(1s); }, {mutate(a)});
  EXPECT_NE(error_of<OpError>([&] { engine.wait(a); }).find("would wait for that op itself"), std::string::npos);
}

}  // namespace
}  // namespace windrow::testing
