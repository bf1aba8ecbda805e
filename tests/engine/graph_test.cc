// Capture and replay. The oracle (machine.h) compares what programs of graphs compute.
#include "support.h"

namespace windrow::testing {
namespace {

class Graphs : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(Graphs);

TEST_P(Graphs, RunNothingBeforeTheyAreLaunched) {
  int runs = 0;
  const Graph graph = engine.capture([&] { engine.push([&] { ++runs; }, {mutate(a)}); }), empty = engine.capture([] {});
  engine.wait_all();
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(graph.size(), 1U);
  EXPECT_EQ(empty.size(), 0U);
  empty.launch();
  const Graph outer = engine.capture([&] { graph.launch(), graph.launch(); });
  EXPECT_EQ(outer.size(), 2U);
  graph.launch();
  outer.launch();
  engine.wait_all();
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(engine.version(a), 3U);
  EXPECT_EQ(engine.stats().pushed, 3U);
}

TEST_P(Graphs, PoisonWhatDependsOnTheOpThatFailedAndNothingElse) {
  bool fails = true;
  int after = 0, beside = 0;
  const auto may_fail = [&] {
    if (fails) throw std::runtime_error("broke");
  };
  const Graph graph = engine.capture([&] {
    engine.push(may_fail, {mutate(a)}, {.name = "first"});
    engine.push([&] { ++after; }, {read(a), mutate(b)}, {.name = "second"});
    engine.push([&] { ++beside; }, {mutate(c)}, {.name = "third"});
  });
  graph.launch();
  expect_error<OpError>([&] { engine.wait(b); },
                        {"op 'second' (pushed at tests/engine/graph_test.cc", "because op 'first'"});
  engine.wait(c);
  EXPECT_EQ(after, 0);
  EXPECT_EQ(beside, 1);
  fails = false;
  engine.heal(a);
  engine.heal(b);
  graph.launch();
  engine.wait({read(a), read(b), read(c)});
  EXPECT_EQ(after, 1);
  EXPECT_EQ(beside, 2);
}

TEST_P(Graphs, BeginTheLifeOfTheirOwnVariablesAnewWithEachLaunch) {
  const Var sum = engine.new_var("sum");
  std::vector<int> seen;
  int buffer = -1, frees = 0;
  bool fails = false;
  Var inner;
  Graph graph = engine.capture([&] {
    inner = engine.new_var("inner");
    engine.push([&] { buffer = fails ? throw std::runtime_error("broke") : 7; }, {mutate(inner)});
    engine.push([&] { seen.push_back(buffer); }, {read(inner), mutate(sum)});
    engine.retire(inner, [&] { ++frees, buffer = -1; });
  });
  for (int i = 0; i < 3; ++i) {
    fails = i == 1;
    graph.launch();
    if (fails) {
      EXPECT_THROW(engine.wait(sum), OpError);
      engine.heal(sum);
    }
    engine.wait(sum);
  }
  engine.wait_all_for(patience);
  EXPECT_EQ(seen, (std::vector<int>{7, 7}));
  EXPECT_EQ(frees, 3);
  EXPECT_THROW(engine.push([] {}, {read(inner)}), MisuseError);
}

TEST_P(Graphs, RetireAVariableFromOutsideOnce) {
  int frees = 0;
  const Graph graph = engine.capture([&] { engine.retire(a, [&] { ++frees; }); });
  engine.push([] {}, {mutate(a)});
  graph.launch();
  expect_error<MisuseError>([&] { graph.launch(); }, "variable 'a', which was retired");
  EXPECT_THROW(engine.push([] {}, {read(a)}), MisuseError);
  engine.wait_all();
  EXPECT_EQ(frees, 1);
  const Var next = engine.new_var("next");  // in the same place
  engine.push([] {}, {mutate(next)});
  engine.wait(next);
  EXPECT_EQ(engine.version(next), 1U);
}

TEST_P(Graphs, AreNotChangedByACaptureThatThrows) {
  int runs = 0;
  const Graph graph = engine.capture([&] { engine.push([&] { ++runs; }, {mutate(a)}); });
  const auto broken = [&] {
    engine.push([&] { ++runs; }, {mutate(a)});
    throw std::runtime_error("broke");
  };
  EXPECT_THROW(graph.append(broken), std::runtime_error);
  EXPECT_THROW(engine.capture(broken), std::runtime_error);
  engine.push([&] { runs += 10; }, {mutate(a)});  // the capture is over
  graph.launch();
  engine.wait(a);
  EXPECT_EQ(runs, 11);
}

TEST_P(Graphs, RefuseWhatMakesNoSense) {
  EXPECT_THROW(Graph().launch(), MisuseError);
  EXPECT_THROW(engine.capture(nullptr), MisuseError);
  engine.capture([&] {
    EXPECT_THROW(engine.wait(a), MisuseError);
    EXPECT_THROW(engine.wait_all(), MisuseError);
    EXPECT_THROW(engine.capture([] {}), MisuseError);
    EXPECT_THROW(engine.push([] {}, {read(Var())}), MisuseError);
    engine.retire(b);
    expect_error<MisuseError>([&] { engine.push([] {}, {read(b)}); }, "retired earlier in the capture");
  });
  const Graph graph = engine.capture([&] { engine.push([] {}, {mutate(a)}); }), empty = engine.capture([] {});
  engine.shutdown();
  EXPECT_THROW(graph.launch(), MisuseError);
  EXPECT_THROW(empty.launch(), MisuseError);
}

TEST(Graph, IsShownInTheLanguageOfGraphviz) {
  Engine engine({.workers = 1});
  const Var a = engine.new_var("a"), b = engine.new_var("the \"b\"");
  const Graph graph = engine.capture(
      [&] {
        engine.push([] {}, {overwrite(a)}, {.name = "load"});
        engine.push([] {}, {read(a), mutate(b)}, {.name = "add"});
      },
      "step");
  const std::string dot = graph.dot();
  EXPECT_EQ(dot.substr(0, 16), "digraph \"step\" {") << dot;
  EXPECT_NE(dot.find("op0 [label=\"load\\ntests/engine/graph_test.cc:"), std::string::npos) << dot;
  EXPECT_NE(dot.find("  op0 -> op1;\n"), std::string::npos) << dot;
  EXPECT_NE(dot.find("label=\"the \\\"b\\\"\""), std::string::npos) << dot;
  EXPECT_EQ(dot.find("op1 -> op0"), std::string::npos) << dot;
}

// What runs at one time inside a graph, beside it, and beside its other launches.

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
  Tokens slow;
  const Graph graph = engine.capture([&] {
    engine.push([] {}, {mutate(b)});
    engine.push_async(slow.taker(), {mutate(a), read(b)});
  });
  graph.launch();
  EXPECT_TRUE(comes_true([&] { return slow.count() == 1; }));
  // The last op still reads it, so that it may be read and no more.
  EXPECT_TRUE(engine.wait_for({read(b)}, patience));
  EXPECT_FALSE(engine.wait_for({mutate(b)}, 0s));
  slow.complete_one();
  engine.wait({mutate(b)});
}

TEST_P(ThreadedGraphs, OverlapWhereTheirVariablesAllow) {
  Tokens inside;
  const Graph graph = engine.capture([&] { engine.push_async(inside.taker(), {read(a)}); });
  graph.launch();
  graph.launch();
  EXPECT_TRUE(comes_true([&] { return inside.count() == 2; }));
  while (inside.complete_one()) continue;
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
