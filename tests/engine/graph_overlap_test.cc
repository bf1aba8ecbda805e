// What runs at one time inside a graph, beside it, and beside its other launches.
#include <atomic>
#include <thread>

#include "tests/engine/support.h"

namespace windrow::testing {
namespace {

class ThreadedGraphs : public EveryPolicy {
 protected:
  Engine engine_{options()};
};
WINDROW_THREADED_POLICIES(ThreadedGraphs);

TEST_P(ThreadedGraphs, LetAnOpStartWhenItsOwnInputsAreReady) {
  const Var slow = engine_.new_var("slow"), quick = engine_.new_var("quick"), c = engine_.new_var("c");
  Gate gate;
  engine_.push_async(
      [&](OnComplete done) { std::thread([&, d = std::move(done)]() mutable { gate.pass(), d(); }).detach(); },
      {mutate(slow)});
  const Graph graph = engine_.capture([&] {
    engine_.push([] {}, {mutate(slow)});
    engine_.push([] {}, {mutate(quick)});
    engine_.push([] {}, {read(slow), mutate(c)});
  });
  graph.launch();
  EXPECT_TRUE(engine_.wait_for({read(quick)}, patience));
  EXPECT_FALSE(engine_.wait_for({read(c)}, 0s));
  gate.open();
  engine_.wait(c);
}

TEST_P(ThreadedGraphs, LetASuccessorStartWhenItsOwnInputIsDone) {
  const Var slow = engine_.new_var("slow"), quick = engine_.new_var("quick");
  Gate gate;
  const Graph graph = engine_.capture([&] {
    engine_.push([] {}, {mutate(quick)});
    engine_.push_async(
        [&](OnComplete done) { std::thread([&, d = std::move(done)]() mutable { gate.pass(), d(); }).detach(); },
        {mutate(slow), read(quick)});
  });
  graph.launch();
  // The last op still reads it, so that it may be read and no more.
  EXPECT_TRUE(engine_.wait_for({read(quick)}, patience));
  EXPECT_FALSE(engine_.wait_for({mutate(quick)}, 0s));
  gate.open();
  engine_.wait({mutate(quick)});
}

TEST_P(ThreadedGraphs, OverlapWhereTheirVariablesAllow) {
  const Var a = engine_.new_var("a");
  std::atomic<int> inside{0};
  Gate both;
  const Graph graph = engine_.capture([&] {
    engine_.push_async(
        [&](OnComplete done) {
          if (++inside == 2) both.open();
          std::thread([&, d = std::move(done)]() mutable {
            EXPECT_TRUE(both.pass());
            d();
          }).detach();
        },
        {read(a)});
  });
  graph.launch();
  graph.launch();
  engine_.wait({mutate(a)});
  EXPECT_EQ(inside, 2);
}

TEST_P(ThreadedGraphs, MayBeLaunchedBySeveralThreads) {
  const Var a = engine_.new_var("a"), b = engine_.new_var("b");
  std::int64_t x = 0, y = 0;
  const Graph one = engine_.capture([&] {
    engine_.push([&] { ++x; }, {mutate(a)});
    engine_.push(
        [&] {
          y += x;
          y -= x;
          ++y;
        },
        {read(a), mutate(b)});
  });
  const Graph other = engine_.capture([&] {
    engine_.push([&] { ++y; }, {mutate(b)});
    engine_.push(
        [&] {
          x += y;
          x -= y;
          ++x;
        },
        {read(b), mutate(a)});
  });
  std::vector<std::thread> threads;
  for (const Graph* graph : {&one, &other, &one, &other}) {
    threads.emplace_back([graph] {
      for (int i = 0; i < 100; ++i) graph->launch();
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine_.wait_all();
  EXPECT_EQ(x, 400);
  EXPECT_EQ(y, 400);
}

TEST_P(ThreadedGraphs, MayBeExtendedWhileOthersLaunchThem) {
  const Var a = engine_.new_var("a");
  std::atomic<int> first{0}, more{0};
  const Graph graph = engine_.capture([&] { engine_.push([&] { ++first; }, {mutate(a)}); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) graph.launch();
    });
  }
  for (int i = 0; i < 40; ++i) graph.append([&] { engine_.push([&] { ++more; }, {mutate(a)}); });
  for (std::thread& thread : threads) thread.join();
  engine_.wait(a);
  EXPECT_EQ(first, 800);
  const int before = more;
  graph.launch();
  engine_.wait(a);
  EXPECT_EQ(more, before + 40);
}

TEST_P(ThreadedGraphs, EnterAllTheirOpsAtOneInstant) {
  const Var a = engine_.new_var("a"), b = engine_.new_var("b");
  int x = 0, y = 0;
  std::atomic<int> between{0};
  const Graph writes = engine_.capture([&] {
    engine_.push([&] { ++x; }, {mutate(a)});
    engine_.push([&] { ++y; }, {mutate(b)});
  });
  const Graph looks = engine_.capture([&] {
    engine_.push([&] { between += x != y; }, {read(a), read(b)});
    engine_.push([&] { between += x != y; }, {read(a), read(b)});
  });
  std::vector<std::thread> threads;
  for (const Graph* graph : {&writes, &looks, &writes, &looks}) {
    threads.emplace_back([graph] {
      for (int i = 0; i < 200; ++i) graph->launch();
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine_.wait_all();
  EXPECT_EQ(between, 0);
  EXPECT_EQ(x, 400);
}

TEST_P(ThreadedGraphs, MayBeDroppedByAnOpOfTheirs) {
  const auto captured = std::make_shared<int>(0);
  const Var a = engine_.new_var("a"), b = engine_.new_var("b");
  for (int i = 0; i < 100; ++i) {
    auto graph = std::make_shared<Graph>();
    *graph = engine_.capture([&] {
      engine_.push([captured, g = graph.get()] { *g = {}; }, {mutate(a)});
      engine_.push([captured] {}, {mutate(b)});
    });
    const Graph launched = *graph;
    launched.launch();
    engine_.push([graph, captured] {}, {mutate(a)});  // keeps the other handle's place until then
  }
  ASSERT_TRUE(engine_.wait_all_for(patience));
  EXPECT_EQ(captured.use_count(), 1);
}

/// Declared ops are dropped before, while and after they run.
TEST_P(ThreadedGraphs, AndDeclaredOpsMayBeDroppedJustAsTheyEnd) {
  const auto captured = std::make_shared<int>(0);
  const Var a = engine_.new_var("a");
  for (int i = 0; i < 2000; ++i) {
    std::atomic<bool> runs{false};
    {
      const DeclaredOp op = engine_.declare([captured, &runs] { runs = true; }, {mutate(a)});
      engine_.push(op);
      if (i % 2 == 0) {
        while (!runs) std::this_thread::yield();
        for (int pause = i % 64; pause > 0; --pause) static_cast<void>(runs.load());
      }
    }
    engine_.wait(a);
  }
  ASSERT_TRUE(engine_.wait_all_for(patience));
  EXPECT_EQ(captured.use_count(), 1);
}

TEST_P(ThreadedGraphs, MayWaitInside) {
  const Var a = engine_.new_var("a"), b = engine_.new_var("b");
  int x = 0, seen = 0;
  const Graph graph = engine_.capture([&] {
    engine_.push([&] { ++x; }, {mutate(a)});
    engine_.push([&] { engine_.wait(a), seen = x; }, {mutate(b)});
  });
  graph.launch();
  engine_.wait(b);
  EXPECT_EQ(seen, 1);
}

TEST_P(ThreadedGraphs, FindWaitsThatCannotEnd) {
  const Var a = engine_.new_var("a"), b = engine_.new_var("b");
  std::string text;
  const Graph graph = engine_.capture([&] {
    engine_.push([&] { text = error_of<WaitCycleError>([&] { engine_.wait(b); }); }, {mutate(a)}, {.name = "waits"});
    engine_.push([] {}, {read(a), mutate(b)}, {.name = "is waited for"});
  });
  Gate gate;
  engine_.push([&] { gate.pass(); }, {mutate(a)});
  graph.launch();
  gate.open();
  engine_.wait_all();
  EXPECT_NE(text.find("op 'waits'"), std::string::npos) << text;
  EXPECT_NE(text.find("op 'is waited for'"), std::string::npos) << text;
}

}  // namespace
}  // namespace windrow::testing
