// What graphs share with the rest of the engine: turns, captures of users that end, variables that end, engines that
// end.

#include "tests/engine/support.h"
#include "windrow/engine/internal/engine_use.h"

namespace windrow::testing {
namespace {

class GraphLife : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(GraphLife);

TEST(GraphTurns, AnOpThatIsReadyIsNotHiddenBehindOneThatItsWorkerGoesOnWith) {
  Engine engine({.policy = Policy::pool, .workers = 4});
  const Var a = engine.new_var("a"), b = engine.new_var("b"), c = engine.new_var("c");
  Crowd crowd;
  const Graph graph = engine.capture([&] {
    engine.push([] {}, {mutate(a)});
    engine.push([&] { crowd.meet(2); }, {read(a), mutate(b)});
    engine.push([&] { crowd.meet(2); }, {read(a), mutate(c)});
  });
  graph.launch();
  engine.wait_all();
}

/// Links that are successors of each other go from op to op without a queue.
TEST(GraphTurns, ALongChainLeavesAPlaceToOthers) {
  for (const bool launched : {true, false}) {
    for (const int priority : {0, 1, -1}) {
      constexpr int links = 20'000;
      Engine engine({.policy = Policy::pool, .workers = 1, .max_pending_ops = 2 * links});
      const Var a = engine.new_var("a");
      int ran = 0, ran_before = links;
      const auto push_chain = [&] {
        for (int i = 0; i < links; ++i) engine.push([&] { ++ran; }, {mutate(a)});
      };
      const Graph chain = engine.capture(push_chain);
      StuckOp stuck(engine, {mutate(a)});
      launched ? chain.launch() : push_chain();
      engine.push([&] { ran_before = ran; }, {}, {.priority = priority});
      stuck.let_go();
      engine.wait_all();
      EXPECT_LT(ran_before, links / 10) << "priority " << priority << (launched ? ", launched" : "");
    }
  }
}

TEST_P(GraphLife, CapturesMayWaitForWhatComesBehindTheLaunchAsTheyEnd) {
  std::atomic<bool> behind{false}, waited{false};
  Graph graph = engine.capture([&] {
    auto at_end = std::make_shared<AtEnd>([&] { waited = engine.wait_for({read(a)}, patience) && behind; });
    engine.push([at_end] {}, {mutate(a)});
  });
  engine.push(
      [&, last = std::make_shared<Graph>(std::move(graph))]() mutable {
        last->launch();
        engine.push([&] { behind = true; }, {mutate(a)});
        last.reset();
      },
      {});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_TRUE(waited);
}

TEST_P(GraphLife, OwnVariablesGoWithTheirGraphAlsoInsideACaptureOfAnother) {
  Graph inner = engine.capture([&] {
    const Var own = engine.new_var("own");
    engine.push([] {}, {mutate(own)});
    engine.retire(own);
  });
  inner.launch();
  engine.wait_all();
  const Graph outer = engine.capture([&] {
    inner = {};
    engine.push([] {}, {mutate(b)});
  });
  EXPECT_EQ(outer.size(), 1U);
  outer.launch();
  outer.launch();
  engine.wait(b);
  EXPECT_EQ(engine.version(b), 2U);
}

TEST_P(GraphLife, WhatACaptureThatThrowsHasMadeAndRetiredIsRetired) {
  Var ended, kept;
  int frees = 0;
  const auto captured = std::make_shared<int>(0);
  const auto body = [&] {
    ended = engine.new_var("ended");
    kept = engine.new_var("kept");
    engine.push([] {}, {mutate(ended), mutate(kept)});
    engine.retire(ended, [captured](OpContext&) {});
    engine.retire(a, [&] { ++frees; });
    throw std::runtime_error("the body");
  };
  EXPECT_THROW(engine.capture(body), std::runtime_error);
  ASSERT_TRUE(engine.wait_all_for(patience));
  for (const Var var : {ended, a}) EXPECT_THROW(engine.version(var), MisuseError);
  EXPECT_EQ(captured.use_count(), 1);
  EXPECT_EQ(frees, 1);
  engine.push([] {}, {mutate(kept)});
  EXPECT_TRUE(engine.wait_for({read(kept)}, patience));
}

TEST_P(GraphLife, ARetireThatThrowsLeavesItsFunction) {
  engine.retire(a);
  OpFunction last([] {});
  EXPECT_THROW(engine.retire(a, std::move(last)), MisuseError);
  EXPECT_TRUE(last);
  engine.capture([&] { EXPECT_THROW(engine.retire(a, std::move(last)), MisuseError); });
  EXPECT_TRUE(last);
}

TEST_P(GraphLife, TheSecondLaunchBehindARetireSaysWhatEndedAndWhere) {
  const std::string here = std::string(__FILE__) + ":";
  const int line = __LINE__ + 1;
  const Graph retires = engine.capture([&] { engine.retire(a); });
  const Graph ends = engine.capture([&] { EngineUse::retire(engine, b, "the thing"); });
  for (const Graph& graph : {retires, ends}) graph.launch();
  const std::string first = "', which was retired by this graph's first launch (captured at " + here;
  expect_error<MisuseError>([&] { retires.launch(); },
                            "variable 'a" + first + std::to_string(line) + "): retire it outside the capture");
  expect_error<MisuseError>([&] { ends.launch(); },
                            "variable 'b" + first + std::to_string(line + 1) + "): keep the thing alive");
  engine.wait_all();
  const Var reused = engine.new_var("reused");  // in the place of one of them
  expect_error<MisuseError>([&] { retires.launch(); }, "variable 'a");
  engine.retire(reused);
}

TEST_P(GraphLife, ARetireOfAnotherGraphOrBesideTheGraphIsNotTakenForItsOwn) {
  const Graph inner = engine.capture([&] { engine.retire(a); });
  const Graph outer = engine.capture([&] { inner.launch(); });
  const Graph late = engine.capture([&] { engine.retire(b); });
  inner.launch();
  expect_error<MisuseError>([&] { outer.launch(); }, "retired by the launch of another graph with this retire");
  engine.retire(b);
  EXPECT_TRUE(error_of<MisuseError>([&] { late.launch(); }).ends_with("names variable 'b', which was retired"));
}

TEST_P(GraphLife, NothingIsAppendedBehindARetire) {
  const Graph graph = engine.capture([&] { engine.retire(a); });
  expect_error<MisuseError>([&] { graph.append([&] { engine.push([] {}, {read(a)}); }); },
                            "variable 'a', which was retired");
  EXPECT_EQ(graph.size(), 1U);
}

TEST_P(GraphLife, TheNextLifeOfAVariableIsNotTakenForTheLast) {
  int runs = 0;
  const Var first = engine.new_var("first");
  const Graph graph = engine.capture([&] { engine.push([&] { ++runs; }, {mutate(first)}); });
  engine.retire(first);
  engine.wait_all();
  const Var second = engine.new_var("second");  // in the same place
  graph.append([&] { engine.push([&] { ++runs; }, {mutate(second)}); });
  EXPECT_THROW(graph.launch(), MisuseError);
  EXPECT_THROW(engine.capture([&] { engine.push([] {}, {read(first)}); }), MisuseError);
  engine.wait_all();
  EXPECT_EQ(runs, 0);
}

TEST_P(GraphLife, BytesOfCapturedOpsCountNowhere) {
  const Graph graph = engine.capture([&] { engine.push([] {}, {mutate(a)}, {.bytes = 100}); });
  graph.launch();
  EXPECT_EQ(engine.stats().pending_bytes, 0U);
}

TEST_P(GraphLife, HandlesMayGoWhileTheirEngineEnds) {
  for (int i = 0; i < 20; ++i) {
    auto ending = std::make_unique<Engine>(options());
    Graph graph = ending->capture([&] {
      const Var own = ending->new_var("own");
      ending->push([] {}, {mutate(own)});
      ending->retire(own);
    });
    graph.launch();
    std::jthread other([last = std::move(graph)]() mutable { last = {}; });
    ending.reset();
  }
}

TEST_P(GraphLife, OpsOfADroppedGraphRunToTheEndOfTheirEngine) {
  std::atomic<int> runs{0};
  const auto captured = std::make_shared<int>(0);
  {
    Engine ending(options());
    const Var x = ending.new_var("x"), y = ending.new_var("y"), z = ending.new_var("z");
    DeclaredOp declared = ending.declare([&runs, captured] { ++runs; }, {mutate(z)});
    {
      const Graph graph = ending.capture([&] {
        ending.push([&runs, captured] { ++runs; }, {mutate(x)});
        ending.push([&runs, captured] { ++runs; }, {read(x), mutate(y)});
      });
      for (int i = 0; i < 100; ++i) graph.launch(), ending.push(declared);
    }
    declared = {};
    ending.retire(x);
    ending.retire(z);
  }
  EXPECT_EQ(runs, 300);
  EXPECT_EQ(captured.use_count(), 1);
}

TEST_P(GraphLife, NothingRunsOfALaunchWithARetiredVariable) {
  int runs = 0;
  const auto captured = std::make_shared<int>(0);
  Graph graph = engine.capture([&] {
    engine.push([&runs, captured] { ++runs; }, {mutate(a)});
    engine.push([&runs, captured] { ++runs; }, {read(a), mutate(b)});
  });
  DeclaredOp declared = engine.declare([&runs, captured] { ++runs; }, {mutate(b)}, {.name = "declared"});
  graph.launch();
  engine.push(declared);
  engine.retire(b);
  expect_error<MisuseError>([&] { graph.launch(); }, "variable 'b', which was retired");
  expect_error<MisuseError>([&] { engine.push(declared); }, "'declared'");
  engine.wait_all();
  EXPECT_EQ(runs, 3);
  graph = {};
  declared = {};
  EXPECT_EQ(captured.use_count(), 1);
  EXPECT_EQ(engine.stats().pending, 0u);
}

}  // namespace
}  // namespace windrow::testing
