// Ops that are called off: PushOptions::stop. The oracle (random_program.h) compares which ops are cancelled.
#include <atomic>
#include <memory>
#include <stop_token>

#include "support.h"

namespace windrow::testing {
namespace {

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
  try {
    engine.wait(b);
    FAIL();
  } catch (const OpError& e) {
    const std::string text = e.what();
    EXPECT_TRUE(text.starts_with("op 'scale' (pushed at ")) << text;
    EXPECT_NE(text.find(" was skipped because op 'load' (pushed at "), std::string::npos) << text;
    EXPECT_TRUE(text.ends_with(" was cancelled")) << text;
    EXPECT_EQ(e.failures().front()->root().kind, Failure::Kind::cancelled);
    EXPECT_THROW(e.rethrow_root(), Cancelled);
  }
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
