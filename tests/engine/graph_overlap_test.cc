// What runs at one time inside a graph, beside it, and beside its other launches.
#include <atomic>
#include <thread>

#include "tests/engine/support.h"

namespace windrow::testing {
namespace {

class ThreadedGraphs : public EngineOnEveryPolicy {};
WINDROW_THREADED_POLICIES(ThreadedGraphs);

TEST_P(ThreadedGraphs, LetAnOpStartWhenItsOwnInputsAreReady) {
  HeldOp slow(engine, {mutate(a)});
  const Graph graph = engine.capture([&] {
    engine.push([] {}, {mutate(a)});
    engine.push([] {}, {mutate(b)});
    engine.push([] {}, {read(a), mutate(c)});
  });
  graph.launch();
  EXPECT_TRUE(engine.wait_for({read(b)}, patience));
  EXPECT_FALSE(engine.wait_for({read(c)}, 0s));
  slow.complete();
  engine.wait(c);
}

TEST_P(ThreadedGraphs, LetASuccessorStartWhenItsOwnInputIsDone) {
  std::optional<OnComplete> slow;
  Gate begun;
  const Graph graph = engine.capture([&] {
    engine.push([] {}, {mutate(b)});
    engine.push_async([&](OnComplete done) { slow = std::move(done), begun.open(); }, {mutate(a), read(b)});
  });
  graph.launch();
  begun.await();
  // The last op still reads it, so that it may be read and no more.
  EXPECT_TRUE(engine.wait_for({read(b)}, patience));
  EXPECT_FALSE(engine.wait_for({mutate(b)}, 0s));
  (*slow)();
  engine.wait({mutate(b)});
}

TEST_P(ThreadedGraphs, OverlapWhereTheirVariablesAllow) {
  std::mutex mutex;
  std::vector<OnComplete> inside;
  Gate both;
  const auto enter = [&](OnComplete done) {
    const std::lock_guard lock(mutex);
    inside.push_back(std::move(done));
    if (inside.size() == 2) both.open();
  };
  const Graph graph = engine.capture([&] { engine.push_async(enter, {read(a)}); });
  graph.launch();
  graph.launch();
  ASSERT_TRUE(both.pass());
  for (OnComplete& done : inside) done();
  engine.wait({mutate(a)});
}

TEST_P(ThreadedGraphs, MayBeExtendedWhileOthersLaunchThem) {
  std::atomic<int> first{0}, more{0};
  const Graph graph = engine.capture([&] { engine.push([&] { ++first; }, {mutate(a)}); });
  on_threads(5, [&](int t) {
    for (int i = 0; t > 0 && i < 200; ++i) graph.launch();
    for (int i = 0; t == 0 && i < 40; ++i) graph.append([&] { engine.push([&] { ++more; }, {mutate(a)}); });
  });
  engine.wait(a);
  EXPECT_EQ(first, 800);
  const int before = more;
  graph.launch();
  engine.wait(a);
  EXPECT_EQ(more, before + 40);
}

TEST_P(ThreadedGraphs, EnterAllTheirOpsAtOneInstant) {
  int x = 0, y = 0;
  std::atomic<int> between{0};
  const Graph writes = engine.capture([&] {
    engine.push([&] { ++x; }, {mutate(a)});
    engine.push([&] { ++y; }, {mutate(b)});
  });
  const Graph looks = engine.capture([&] {
    engine.push([&] { between += x != y; }, {read(b), read(a)});
    engine.push([&] { between += x != y; }, {read(a), read(b)});
  });
  on_threads(4, [&](int t) {
    for (int i = 0; i < 200; ++i) (t % 2 == 0 ? writes : looks).launch();
  });
  engine.wait_all();
  EXPECT_EQ(between, 0);
  EXPECT_EQ(x, 400);
}

TEST_P(ThreadedGraphs, MayBeDroppedByAnOpOfTheirs) {
  const auto captured = std::make_shared<int>(0);
  for (int i = 0; i < 100; ++i) {
    auto graph = std::make_shared<Graph>();
    *graph = engine.capture([&] {
      engine.push([captured, g = graph.get()] { *g = {}; }, {mutate(a)});
      engine.push([captured] {}, {mutate(b)});
    });
    const Graph launched = *graph;
    launched.launch();
    engine.push([graph, captured] {}, {mutate(a)});  // keeps the other handle's place until then
  }
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(captured.use_count(), 1);
}

/// Declared ops are dropped before, while and after they run.
TEST_P(ThreadedGraphs, AndDeclaredOpsMayBeDroppedJustAsTheyEnd) {
  const auto captured = std::make_shared<int>(0);
  for (int i = 0; i < 2000; ++i) {
    std::atomic<bool> runs{false};
    {
      const DeclaredOp op = engine.declare([captured, &runs] { runs = true; }, {mutate(a)});
      engine.push(op);
      if (i % 2 == 0) {
        while (!runs) std::this_thread::yield();
        for (int pause = i % 64; pause > 0; --pause) static_cast<void>(runs.load());
      }
    }
    engine.wait(a);
  }
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(captured.use_count(), 1);
}

}  // namespace
}  // namespace windrow::testing
