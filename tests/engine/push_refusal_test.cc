// Scopes in which a thread pushes nothing.
#include "windrow/engine/internal/push_refusal.h"

#include <atomic>
#include <thread>

#include "support.h"

namespace windrow {
namespace {

using testing::error_of;

class Refusal : public testing::EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(Refusal);

TEST_P(Refusal, RefusesWhatTheThreadPushes) {
  const Graph graph = engine.capture([&] { engine.push([] {}, {mutate(a)}); }, "graph");
  const DeclaredOp declared = engine.declare([] {}, {mutate(a)}, {.name = "declared"});
  const std::uint64_t before = engine.stats().pushed;
  {
    const PushRefusal refusal(engine, "expected silence");
    const auto expect_refused = [&](const char* name, const std::function<void()>& call) {
      testing::expect_error<MisuseError>(call, {name, "expected silence"});
    };
    expect_refused("add", [&] { engine.push([] {}, {mutate(a)}, {.name = "add"}); });
    expect_refused("send", [&] { engine.push_async([](OnComplete) {}, {mutate(a)}, {.name = "send"}); });
    expect_refused("heal", [&] { engine.heal(a); });
    expect_refused("graph", [&] { graph.launch(); });
    expect_refused("declared", [&] { engine.push(declared); });
    expect_refused("wait", [&] { engine.wait(a); });
    expect_refused("wait", [&] { engine.wait_all(); });
    expect_refused("capture", [&] { engine.capture([] {}); });
    EXPECT_NE(error_of<MisuseError>([&] { PushRefusal(engine, "twice"); }), "");
  }
  EXPECT_EQ(engine.stats().pushed, before);
  bool ran = false;
  engine.push([&] { ran = true; }, {mutate(a)});
  graph.launch();
  engine.push(declared);
  engine.wait_all();
  EXPECT_TRUE(ran);
}

TEST_P(Refusal, LetsOwnersEnd) {
  std::atomic<int> ended = 0;
  {
    const PushRefusal refusal(engine, "expected silence");
    engine.retire(b, [&] { ++ended; });
  }
  engine.wait_all();
  EXPECT_EQ(ended, 1);
}

TEST_P(Refusal, IsOfOneThreadAndOneEngine) {
  Engine other;
  const Var of_other = other.new_var("of other");
  std::atomic<int> ran = 0;
  const PushRefusal refusal(engine, "expected silence");
  other.push([&] { ++ran; }, {mutate(of_other)});
  other.wait(of_other);
  std::thread([&] {
    engine.push([&] { ++ran; }, {mutate(a)});
    engine.wait(a);
  }).join();
  EXPECT_EQ(ran, 2);
}

TEST_P(Refusal, IsNotPossibleInsideACapture) {
  const Graph graph = engine.capture([&] {
    testing::expect_error<MisuseError>([&] { PushRefusal(engine, "expected silence"); }, "capture");
    engine.push([] {}, {mutate(a)});
  });
  EXPECT_EQ(graph.size(), 1U);
}

}  // namespace
}  // namespace windrow
