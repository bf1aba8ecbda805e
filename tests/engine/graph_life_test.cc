// What graphs share with the rest of the engine: turns, captures of users that end, variables that end, engines that
// end.
#include <atomic>
#include <thread>

#include "tests/engine/support.h"

namespace windrow::testing {
namespace {

class GraphLife : public EveryPolicy {
 protected:
  Engine engine_{options()};
};
WINDROW_EVERY_POLICY(GraphLife);

/// Calls a function when it goes.
struct AtEnd {
  std::function<void()> call;
  ~AtEnd() { call(); }
};

TEST(GraphTurns, AnOpThatIsReadyIsNotHiddenBehindOneThatItsWorkerGoesOnWith) {
  Engine engine({.policy = Policy::pool, .workers = 4});
  const Var a = engine.new_var("a"), b = engine.new_var("b"), c = engine.new_var("c");
  Gate left, right;
  const Graph graph = engine.capture([&] {
    engine.push([] {}, {mutate(a)});
    engine.push(
        [&] {
          left.open();
          EXPECT_TRUE(right.pass());
        },
        {read(a), mutate(b)});
    engine.push(
        [&] {
          right.open();
          EXPECT_TRUE(left.pass());
        },
        {read(a), mutate(c)});
  });
  graph.launch();
  engine.wait_all();
}

TEST(GraphTurns, ALongChainLeavesAPlaceToOthers) {
  for (const int priority : {0, 1, -1}) {
    constexpr int links = 20'000;
    Engine engine({.policy = Policy::pool, .workers = 1, .max_pending_ops = 2 * links});
    const Var a = engine.new_var("a");
    Gate gate;
    int ran = 0, ran_before = links;
    const Graph chain = engine.capture([&] {
      for (int i = 0; i < links; ++i) engine.push([&] { ++ran; }, {mutate(a)});
    });
    engine.push([&] { EXPECT_TRUE(gate.pass()); }, {mutate(a)});
    chain.launch();
    engine.push([&] { ran_before = ran; }, {}, {.priority = priority});
    gate.open();
    engine.wait_all();
    EXPECT_LT(ran_before, links / 10) << "priority " << priority;
  }
}

TEST_P(GraphLife, CapturesMayWaitForWhatComesBehindTheLaunchAsTheyEnd) {
  const Var a = engine_.new_var("a");
  std::atomic<bool> behind{false}, waited{false};
  Graph graph = engine_.capture([&] {
    auto at_end = std::make_shared<AtEnd>([&] { waited = engine_.wait_for({read(a)}, patience) && behind; });
    engine_.push([at_end] {}, {mutate(a)});
  });
  engine_.push(
      [&, last = std::make_shared<Graph>(std::move(graph))]() mutable {
        last->launch();
        engine_.push([&] { behind = true; }, {mutate(a)});
        last.reset();
      },
      {});
  ASSERT_TRUE(engine_.wait_all_for(patience));
  EXPECT_TRUE(waited);
}

TEST_P(GraphLife, OwnVariablesGoWithTheirGraphAlsoInsideACaptureOfAnother) {
  const Var b = engine_.new_var("b");
  Graph inner = engine_.capture([&] {
    const Var own = engine_.new_var("own");
    engine_.push([] {}, {mutate(own)});
    engine_.retire(own);
  });
  inner.launch();
  engine_.wait_all();
  const Graph outer = engine_.capture([&] {
    inner = {};
    engine_.push([] {}, {mutate(b)});
  });
  EXPECT_EQ(outer.size(), 1U);
  outer.launch();
  outer.launch();
  engine_.wait(b);
  EXPECT_EQ(engine_.version(b), 2U);
}

TEST_P(GraphLife, WhatACaptureThatThrowsHasMadeAndRetiredIsRetired) {
  Engine engine(options());
  Var ended, kept;
  const auto captured = std::make_shared<int>(0);
  const auto body = [&] {
    ended = engine.new_var("ended");
    kept = engine.new_var("kept");
    engine.push([] {}, {mutate(ended), mutate(kept)});
    engine.retire(ended, [captured](OpContext&) {});
    throw std::runtime_error("the body");
  };
  EXPECT_THROW(engine.capture(body), std::runtime_error);
  ASSERT_TRUE(engine.wait_all_for(patience));
  error_of<MisuseError>([&] { engine.version(ended); });
  EXPECT_EQ(captured.use_count(), 1);
  engine.push([] {}, {mutate(kept)});
  EXPECT_TRUE(engine.wait_for({read(kept)}, patience));
}

TEST_P(GraphLife, AVariableFromOutsideThatNoLaunchHasRetiredIsRetiredWithTheGraph) {
  const Var a = engine_.new_var("a");
  const auto captured = std::make_shared<int>(0);
  int value = 0, seen = 0;
  Graph graph = engine_.capture([&] { engine_.retire(a, [&, captured] { seen = value; }); });
  engine_.push([&] { value = 1; }, {mutate(a)});
  graph = {};
  ASSERT_TRUE(engine_.wait_all_for(patience));
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(captured.use_count(), 1);
  error_of<MisuseError>([&] { engine_.version(a); });
}

TEST_P(GraphLife, AVariableFromOutsideThatACaptureRetiredBeforeItThrewIsRetired) {
  const Var a = engine_.new_var("a");
  int frees = 0;
  const auto body = [&] {
    engine_.retire(a, [&] { ++frees; });
    throw std::runtime_error("the body");
  };
  EXPECT_THROW(engine_.capture(body), std::runtime_error);
  ASSERT_TRUE(engine_.wait_all_for(patience));
  EXPECT_EQ(frees, 1);
  error_of<MisuseError>([&] { engine_.version(a); });
}

TEST_P(GraphLife, WhatARetireOwnsGoesWithTheGraphAndNotWithALaunch) {
  const auto owned = std::make_shared<int>(0);
  Graph graph = engine_.capture([&] {
    const Var own = engine_.new_var("own");
    engine_.push([] {}, {mutate(own)});
    engine_.retire(own, [owned] { ++*owned; });
  });
  for (int i = 0; i < 3; ++i) graph.launch();
  ASSERT_TRUE(engine_.wait_all_for(patience));
  EXPECT_EQ(*owned, 3);
  EXPECT_EQ(owned.use_count(), 2);
  graph = {};
  EXPECT_EQ(owned.use_count(), 1);
}

TEST_P(GraphLife, ARetireThatThrowsLeavesItsFunction) {
  const Var a = engine_.new_var("a");
  engine_.retire(a);
  OpFunction last([] {});
  EXPECT_THROW(engine_.retire(a, std::move(last)), MisuseError);
  EXPECT_TRUE(last);
  engine_.capture([&] { EXPECT_THROW(engine_.retire(a, std::move(last)), MisuseError); });
  EXPECT_TRUE(last);
}

TEST_P(GraphLife, NothingIsAppendedBehindARetire) {
  const Var a = engine_.new_var("a");
  const Graph graph = engine_.capture([&] { engine_.retire(a); });
  const std::string text = error_of<MisuseError>([&] { graph.append([&] { engine_.push([] {}, {read(a)}); }); });
  EXPECT_NE(text.find("variable 'a', which was retired"), std::string::npos) << text;
  EXPECT_EQ(graph.size(), 1U);
}

TEST_P(GraphLife, TheNextLifeOfAVariableIsNotTakenForTheLast) {
  int runs = 0;
  const Var first = engine_.new_var("first");
  const Graph graph = engine_.capture([&] { engine_.push([&] { ++runs; }, {mutate(first)}); });
  engine_.retire(first);
  engine_.wait_all();
  const Var second = engine_.new_var("second");  // in the same place
  graph.append([&] { engine_.push([&] { ++runs; }, {mutate(second)}); });
  EXPECT_THROW(graph.launch(), MisuseError);
  EXPECT_THROW(engine_.capture([&] { engine_.push([] {}, {read(first)}); }), MisuseError);
  engine_.wait_all();
  EXPECT_EQ(runs, 0);
}

TEST_P(GraphLife, BytesOfCapturedOpsCountNowhere) {
  auto engine = std::make_unique<Engine>(options());
  const Var a = engine->new_var("a");
  Graph graph = engine->capture([&] { engine->push([] {}, {mutate(a)}, {.bytes = 100}); });
  graph.launch();
  EXPECT_EQ(engine->stats().pending_bytes, 0U);
  engine.reset();
  graph = {};
}

TEST_P(GraphLife, HandlesMayGoWhileTheirEngineEnds) {
  for (int i = 0; i < 20; ++i) {
    auto engine = std::make_unique<Engine>(options());
    Graph graph = engine->capture([&] {
      const Var own = engine->new_var("own");
      engine->push([] {}, {mutate(own)});
      engine->retire(own);
    });
    graph.launch();
    std::thread other([last = std::move(graph)]() mutable { last = {}; });
    engine.reset();
    other.join();
  }
}

TEST_P(GraphLife, OpsOfADroppedGraphRunToTheEndOfTheirEngine) {
  std::atomic<int> runs{0};
  const auto captured = std::make_shared<int>(0);
  {
    Engine engine(options());
    const Var a = engine.new_var("a"), b = engine.new_var("b"), c = engine.new_var("c");
    DeclaredOp declared = engine.declare([&runs, captured] { ++runs; }, {mutate(c)});
    {
      const Graph graph = engine.capture([&] {
        engine.push([&runs, captured] { ++runs; }, {mutate(a)});
        engine.push([&runs, captured] { ++runs; }, {read(a), mutate(b)});
      });
      for (int i = 0; i < 100; ++i) graph.launch(), engine.push(declared);
    }
    declared = {};
    engine.retire(a);
    engine.retire(c);
  }
  EXPECT_EQ(runs, 300);
  EXPECT_EQ(captured.use_count(), 1);
}

TEST_P(GraphLife, NothingRunsOfALaunchWithARetiredVariable) {
  int runs = 0;
  const Var a = engine_.new_var("a"), b = engine_.new_var("b");
  const auto captured = std::make_shared<int>(0);
  Graph graph = engine_.capture([&] {
    engine_.push([&runs, captured] { ++runs; }, {mutate(a)});
    engine_.push([&runs, captured] { ++runs; }, {read(a), mutate(b)});
  });
  DeclaredOp declared = engine_.declare([&runs, captured] { ++runs; }, {mutate(b)}, {.name = "declared"});
  graph.launch();
  engine_.push(declared);
  engine_.retire(b);
  const auto names = [](const std::string& error, const char* what) { return error.find(what) != std::string::npos; };
  EXPECT_TRUE(names(error_of<MisuseError>([&] { graph.launch(); }), "variable 'b', which was retired"));
  EXPECT_TRUE(names(error_of<MisuseError>([&] { engine_.push(declared); }), "'declared'"));
  engine_.wait_all();
  EXPECT_EQ(runs, 3);
  graph = {};
  declared = {};
  EXPECT_EQ(captured.use_count(), 1);
  EXPECT_EQ(engine_.stats().pending, 0u);
}

TEST_P(GraphLife, ACancelledOpOfAGraphPoisonsWhatItMutates) {
  const Var a = engine_.new_var("a"), b = engine_.new_var("b");
  std::stop_source source;
  std::atomic<int> runs{0};
  const Graph graph = engine_.capture([&] {
    engine_.push([&] { ++runs; }, {mutate(a)}, {.name = "called off", .stop = source.get_token()});
    engine_.push([&] { ++runs; }, {mutate(b)});
  });
  graph.launch();
  engine_.wait_all();
  source.request_stop();
  graph.launch();
  const std::string text = error_of<OpError>([&] { engine_.wait(a); });
  EXPECT_NE(text.find("op 'called off'"), std::string::npos) << text;
  engine_.wait(b);
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(engine_.stats().cancelled, 1U);
}

TEST_P(GraphLife, AnEmptyGraphIsNotLaunchedEither) {
  const Graph graph = engine_.capture([] {});
  engine_.shutdown();
  EXPECT_THROW(graph.launch(), MisuseError);
}

}  // namespace
}  // namespace windrow::testing
