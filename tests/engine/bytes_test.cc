// Back-pressure by bytes: PushOptions::bytes and EngineOptions::max_pending_bytes.
#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "support.h"

namespace windrow::testing {
namespace {

class BytesTest : public EveryPolicy {};
WINDROW_EVERY_POLICY(BytesTest);

TEST_P(BytesTest, CountUntilTheOpHasFinished) {
  Engine engine(options());
  const Var a = engine.new_var(), b = engine.new_var();
  std::uint64_t in_first = 0, in_second = 0;
  engine.push([&] { in_first = engine.stats().pending_bytes; }, {mutate(a)}, {.bytes = 100});
  engine.wait(a);
  EXPECT_EQ(engine.stats().pending_bytes, 0u);
  engine.push([] {}, {mutate(a)}, {.bytes = 100});
  engine.push([&] { in_second = engine.stats().pending_bytes; }, {mutate(a)});
  engine.wait(a);
  EXPECT_EQ(in_first, 100u);
  EXPECT_EQ(in_second, 0u);
  engine.push([] { throw std::runtime_error("boom"); }, {mutate(b)}, {.bytes = 100});
  engine.push([] {}, {mutate(b)}, {.bytes = 100});  // skipped
  EXPECT_THROW(engine.wait(b), OpError);
  std::optional<OnComplete> token;
  Gate stored;
  engine.push_async([&](OnComplete done) { token = std::move(done), stored.open(); }, {mutate(a)}, {.bytes = 10});
  ASSERT_TRUE(stored.pass());
  EXPECT_EQ(engine.stats().pending_bytes, 10u);
  (*token)();
  engine.wait(a);
  EXPECT_EQ(engine.stats().pending_bytes, 0u);
}

TEST_P(BytesTest, OfDeclaredOpsCountForEachPush) {
  Engine engine(options());
  const Var a = engine.new_var();
  std::uint64_t pending = 0;
  int ran = 0;
  const DeclaredOp op = engine.declare([&] { ++ran; }, {mutate(a)}, {.bytes = 100});
  EXPECT_EQ(engine.stats().pending_bytes, 0u);
  engine.push(
      [&] {
        for (int i = 0; i < 3; ++i) engine.push(op);
        pending = engine.stats().pending_bytes;
      },
      {mutate(a)});
  engine.wait_all();
  EXPECT_EQ(pending, 300u);
  EXPECT_EQ(ran, 3);
  EXPECT_EQ(engine.stats().pending_bytes, 0u);
}

TEST_P(BytesTest, OfARefusedPushAreGivenBack) {
  Engine engine(options());
  const Var a = engine.new_var();
  engine.retire(a);
  EXPECT_THROW(engine.push([] {}, {mutate(a)}, {.bytes = 100}), MisuseError);
  EXPECT_EQ(engine.stats().pending_bytes, 0u);
}

TEST_P(BytesTest, KeepWhoPushesFromRunningAhead) {
  // Pushing is far quicker than these ops. One push is let through where none of them gets a core for long, so the
  // bound has room for a hundred times that.
  constexpr std::uint64_t limit = 1000, each = 10;
  EngineOptions limited = options();
  limited.max_pending_bytes = limit;
  Engine engine(limited);
  const Var a = engine.new_var();
  std::uint64_t most = 0;
  volatile int work = 0;
  for (int i = 0; i < 3000; ++i) {
    engine.push(
        [&] {
          for (int j = 0; j < 10000; ++j) work = j;
        },
        {mutate(a)}, {.bytes = each});
    most = std::max(most, engine.stats().pending_bytes);
  }
  engine.wait_all();
  EXPECT_LE(most, 2 * limit);
}

TEST_P(BytesTest, NeverHoldBackOps) {
  // Each of these pushes would wait in vain for a while, and all of them for longer than the patience.
  constexpr int pushes = 10000;
  EngineOptions limited = options();
  limited.max_pending_bytes = 1;
  Engine engine(limited);
  const Var a = engine.new_var();
  std::atomic<int> ran{0};
  engine.push(
      [&] {
        for (int i = 0; i < pushes; ++i) engine.push([&] { ++ran; }, {mutate(a)}, {.bytes = 100});
      },
      {mutate(a)});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(ran, pushes);
}

class ThreadedBytesTest : public EveryPolicy {};
WINDROW_THREADED_POLICIES(ThreadedBytesTest);

TEST_P(ThreadedBytesTest, DoNotHoldBackForEverWhoTheOpsWaitFor) {
  EngineOptions limited = options();
  limited.max_pending_bytes = 100;
  limited.push_patience = 20ms;
  Engine engine(limited);
  const Var a = engine.new_var();
  Gate gate;
  int ran = 0;
  engine.push([&] { EXPECT_TRUE(gate.pass()); }, {mutate(a)}, {.bytes = 60});
  for (int i = 0; i < 3; ++i) engine.push([&] { ++ran; }, {mutate(a)}, {.bytes = 60});
  EXPECT_EQ(engine.stats().pending_bytes, 240u);
  gate.open();
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(ran, 3);
}

TEST_P(ThreadedBytesTest, AnOpLargerThanTheLimitGoesAlone) {
  EngineOptions limited = options();
  limited.max_pending_bytes = 100;
  Engine engine(limited);
  const Var a = engine.new_var();
  int ran = 0;
  for (int i = 0; i < 50; ++i) engine.push([&] { ++ran; }, {mutate(a)}, {.bytes = 1000});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(ran, 50);
}

TEST_P(ThreadedBytesTest, ALargePushIsNotPassedBySmallOnesForEver) {
  for (const std::uint64_t large : {900, 2000}) {
    EngineOptions limited = options();
    limited.max_pending_bytes = 1000;
    Engine engine(limited);
    std::atomic<bool> pushes{true}, passed{false};
    std::atomic<int> after{0};  // small pushes since the large one began
    std::vector<std::jthread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        while (pushes) {
          engine.push([] { std::this_thread::sleep_for(200us); }, {}, {.bytes = 100});
          if (!passed) ++after;
        }
      });
    }
    while (engine.stats().pushed < 50) std::this_thread::yield();
    after = 0;
    engine.push([] {}, {}, {.bytes = large});
    passed = true;
    EXPECT_LE(after, 100) << large;
    pushes = false;
    threads.clear();
    ASSERT_TRUE(engine.wait_all_for(patience));
  }
}

}  // namespace
}  // namespace windrow::testing
