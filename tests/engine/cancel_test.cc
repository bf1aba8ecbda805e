// Ops that are called off: PushOptions::stop.
#include <atomic>
#include <memory>
#include <stop_token>

#include "support.h"

namespace windrow::testing {
namespace {

class CancelTest : public EveryPolicy {
 protected:
  Engine engine{options()};
  Var a = engine.new_var("a"), b = engine.new_var("b");
};
WINDROW_EVERY_POLICY(CancelTest);

TEST_P(CancelTest, AnOpWhoseStopIsRequestedDoesNotRunAndSaysSo) {
  bool ran = false;
  const int line = __LINE__ + 1;
  engine.push([&] { ran = true; }, {mutate(a)}, {.name = "load", .stop = stopped()});
  const std::string text = error_of<OpError>([&] { engine.wait(a); });
  EXPECT_EQ(text, "op 'load' (pushed at " + std::string(__FILE__) + ":" + std::to_string(line) + ") was cancelled");
  EXPECT_FALSE(ran);
  EXPECT_EQ(engine.version(a), 0u);
}

TEST_P(CancelTest, AStopThatComesAfterThePushIsSeen) {
  std::stop_source source;
  bool ran = false;
  engine.push_async(
      [&](OnComplete done) {
        engine.push([&] { ran = true; }, {mutate(a)}, {.stop = source.get_token()});
        source.request_stop();
        done();
      },
      {mutate(a)});
  EXPECT_THROW(engine.wait_all(), OpError);
  EXPECT_FALSE(ran);
}

TEST_P(CancelTest, WithoutARequestTheOpRuns) {
  std::stop_source source;
  int ran = 0;
  const std::stop_token none;
  engine.push([&] { ++ran; }, {mutate(a)}, {.stop = source.get_token()});
  engine.push([&] { ++ran; }, {mutate(a)}, {.stop = none});
  engine.push_async([&](OnComplete done) { ++ran, done(); }, {mutate(a)}, {.stop = source.get_token()});
  engine.push(engine.declare([&] { ++ran; }, {mutate(a)}, {.stop = source.get_token()}));
  engine.wait(a);
  EXPECT_EQ(ran, 4);
  EXPECT_EQ(engine.stats().cancelled, 0u);
}

TEST_P(CancelTest, OptionsThatAreStoredKeepTheirToken) {
  std::stop_source source;
  int ran = 0;
  const PushOptions first{.name = "first", .stop = source.get_token()};
  const PushOptions second = first;
  engine.push([&] { ++ran; }, {mutate(a)}, first);
  engine.wait(a);
  source.request_stop();
  engine.push([&] { ++ran; }, {mutate(b)}, second);
  EXPECT_THROW(engine.wait(b), OpError);
  EXPECT_EQ(ran, 1);
}

TEST_P(CancelTest, SuccessorsAreSkippedAndTellTheCause) {
  bool ran = false;
  engine.push([] {}, {mutate(a)}, {.name = "load", .stop = stopped()});
  engine.push([&] { ran = true; }, {read(a), mutate(b)}, {.name = "scale"});
  const std::string text = error_of<OpError>([&] { engine.wait(b); });
  EXPECT_NE(text.find("op 'scale' (pushed at "), std::string::npos) << text;
  EXPECT_NE(text.find(" was skipped because op 'load' (pushed at "), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with(" was cancelled")) << text;
  EXPECT_FALSE(ran);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.cancelled, 1u);
  EXPECT_EQ(stats.skipped, 1u);
  EXPECT_EQ(stats.failed, 0u);
}

TEST_P(CancelTest, WaitAllNamesTheCancelledOp) {
  engine.push([] {}, {mutate(a)}, {.name = "load", .stop = stopped()});
  const std::string text = error_of<OpError>([&] { engine.wait_all(); });
  EXPECT_TRUE(text.starts_with("op 'load' (pushed at ")) << text;
  EXPECT_TRUE(text.ends_with(" was cancelled")) << text;
}

TEST_P(CancelTest, TheRootIsCancelled) {
  engine.push([] {}, {mutate(a)}, {.stop = stopped()});
  engine.push([] {}, {read(a), mutate(b)});
  try {
    engine.wait(b);
    FAIL();
  } catch (const OpError& e) {
    EXPECT_EQ(e.failures().front()->root().kind, Failure::Kind::cancelled);
    EXPECT_THROW(e.rethrow_root(), Cancelled);
  }
}

TEST_P(CancelTest, AsyncAndDeclaredOpsAreCalledOffToo) {
  int ran = 0;
  engine.push_async([&](OnComplete done) { ++ran, done(); }, {mutate(a)}, {.name = "async", .stop = stopped()});
  DeclaredOp declared;
  {
    const std::stop_token gone_after_declare = stopped();
    declared = engine.declare([&] { ++ran; }, {mutate(b)}, {.name = "declared", .stop = gone_after_declare});
  }
  engine.push(declared);
  EXPECT_TRUE(error_of<OpError>([&] { engine.wait(a); }).ends_with(" was cancelled"));
  EXPECT_TRUE(error_of<OpError>([&] { engine.wait(b); }).ends_with(" was cancelled"));
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(engine.stats().cancelled, 2u);
}

TEST_P(CancelTest, RunAlwaysRetireAndHealAreNotCalledOff) {
  int ran = 0;
  engine.push([&] { ++ran; }, {mutate(b)}, {.run_always = true, .stop = stopped()});
  engine.push([] {}, {mutate(a)}, {.stop = stopped()});
  engine.push([&](OpContext& context) { ran += context.failure() != nullptr; }, {mutate(a), read(b)},
              {.run_always = true});
  EXPECT_THROW(engine.wait_all(), OpError);
  engine.heal(a, {.stop = stopped()});
  engine.wait(a);
  engine.retire(a, [&] { ++ran; }, {.stop = stopped()});
  engine.wait_all();
  EXPECT_EQ(ran, 3);
}

TEST_P(CancelTest, AnOpThatSeesItsStopMayThrowCancelled) {
  std::stop_source source;
  engine.push(
      [&, token = source.get_token()] {
        source.request_stop();
        if (token.stop_requested()) throw Cancelled();
      },
      {mutate(a)}, {.stop = source.get_token()});
  EXPECT_TRUE(error_of<OpError>([&] { engine.wait(a); }).ends_with(" was cancelled"));
  EXPECT_EQ(engine.stats().cancelled, 1u);
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

TEST_P(CancelTest, AnOverwriteHealsWhatACancelledOpPoisoned) {
  engine.push([] {}, {mutate(a)}, {.stop = stopped()});
  engine.push([] {}, {overwrite(a)});
  engine.wait(a);
  EXPECT_THROW(engine.wait_all(), OpError);  // nobody was told yet
  engine.wait_all();
}

}  // namespace
}  // namespace windrow::testing
