// Scopes in which a thread pushes nothing.
#include "windrow/engine/internal/push_refusal.h"

#include <atomic>
#include <thread>

#include "support.h"

namespace windrow {
namespace {

using testing::error_of;

class Refusal : public testing::EveryPolicy {
 protected:
  Engine engine_{options()};
  const Var var_ = engine_.new_var("var");
};
WINDROW_EVERY_POLICY(Refusal);

TEST_P(Refusal, RefusesWhatTheThreadPushes) {
  const Graph graph = engine_.capture([&] { engine_.push([] {}, {mutate(var_)}); }, "graph");
  const DeclaredOp declared = engine_.declare([] {}, {mutate(var_)}, {.name = "declared"});
  const std::uint64_t before = engine_.stats().pushed;
  {
    const PushRefusal refusal(engine_, "expected silence");
    const auto expect_refused = [&](const char* name, const std::function<void()>& call) {
      const std::string text = error_of<MisuseError>(call);
      EXPECT_NE(text.find(name), std::string::npos) << text;
      EXPECT_NE(text.find("expected silence"), std::string::npos) << text;
    };
    expect_refused("add", [&] { engine_.push([] {}, {mutate(var_)}, {.name = "add"}); });
    expect_refused("send", [&] { engine_.push_async([](OnComplete) {}, {mutate(var_)}, {.name = "send"}); });
    expect_refused("heal", [&] { engine_.heal(var_); });
    expect_refused("graph", [&] { graph.launch(); });
    expect_refused("declared", [&] { engine_.push(declared); });
    expect_refused("wait", [&] { engine_.wait(var_); });
    expect_refused("wait", [&] { engine_.wait_all(); });
    expect_refused("capture", [&] { engine_.capture([] {}); });
    EXPECT_NE(error_of<MisuseError>([&] { PushRefusal(engine_, "twice"); }), "");
  }
  EXPECT_EQ(engine_.stats().pushed, before);
  bool ran = false;
  engine_.push([&] { ran = true; }, {mutate(var_)});
  graph.launch();
  engine_.push(declared);
  engine_.wait_all();
  EXPECT_TRUE(ran);
}

TEST_P(Refusal, LetsOwnersEnd) {
  std::atomic<int> ended = 0;
  const Var other = engine_.new_var("other");
  {
    const PushRefusal refusal(engine_, "expected silence");
    engine_.retire(other, [&] { ++ended; });
  }
  engine_.wait_all();
  EXPECT_EQ(ended, 1);
}

TEST_P(Refusal, IsOfOneThreadAndOneEngine) {
  Engine other;
  const Var of_other = other.new_var("of other");
  std::atomic<int> ran = 0;
  const PushRefusal refusal(engine_, "expected silence");
  other.push([&] { ++ran; }, {mutate(of_other)});
  other.wait(of_other);
  std::thread([&] {
    engine_.push([&] { ++ran; }, {mutate(var_)});
    engine_.wait(var_);
  }).join();
  EXPECT_EQ(ran, 2);
}

TEST_P(Refusal, IsNotPossibleInsideACapture) {
  const Graph graph = engine_.capture([&] {
    EXPECT_NE(error_of<MisuseError>([&] { PushRefusal(engine_, "expected silence"); }).find("capture"),
              std::string::npos);
    engine_.push([] {}, {mutate(var_)});
  });
  EXPECT_EQ(graph.size(), 1U);
}

}  // namespace
}  // namespace windrow
