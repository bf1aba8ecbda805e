// Capture and replay.
#include <atomic>
#include <thread>

#include "tests/engine/support.h"

namespace windrow::testing {
namespace {

class Graphs : public EveryPolicy {
 protected:
  Engine engine_{options()};
};
WINDROW_EVERY_POLICY(Graphs);

TEST_P(Graphs, RunNothingBeforeTheyAreLaunched) {
  const Var a = engine_.new_var("a");
  int runs = 0;
  const Graph graph = engine_.capture([&] { engine_.push([&] { ++runs; }, {mutate(a)}); });
  engine_.wait_all();
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(graph.size(), 1U);
  for (int i = 0; i < 3; ++i) graph.launch();
  engine_.wait_all();
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(engine_.version(a), 3U);
  EXPECT_EQ(engine_.stats().pushed, 3U);
}

TEST_P(Graphs, KeepTheOrderOfTheirOpsAndOfWhatIsPushedAround) {
  const Var a = engine_.new_var("a"), b = engine_.new_var("b");
  std::int64_t x = 1, y = 0;
  const Graph graph = engine_.capture([&] {
    engine_.push([&] { y = 3 * x; }, {read(a), mutate(b)});
    engine_.push([&] { x = y + 1; }, {read(b), mutate(a)});
  });
  std::int64_t expected_x = 1, expected_y = 0;
  for (int i = 0; i < 20; ++i) {
    graph.launch();
    engine_.push([&] { x -= 2 * y; }, {mutate(a), read(b)});
    expected_y = 3 * expected_x;
    expected_x = expected_y + 1 - 2 * expected_y;
  }
  engine_.wait({read(a), read(b)});
  EXPECT_EQ(x, expected_x);
  EXPECT_EQ(y, expected_y);
}

TEST_P(Graphs, RunLongChains) {
  const Var a = engine_.new_var("a");
  std::uint64_t value = 0;
  const Graph graph = engine_.capture([&] {
    for (std::uint64_t i = 0; i < 1000; ++i) engine_.push([&, i] { value = 31 * value + i; }, {mutate(a)});
  });
  std::uint64_t expected = 0;
  for (int launch = 0; launch < 20; ++launch) {
    graph.launch();
    for (std::uint64_t i = 0; i < 1000; ++i) expected = 31 * expected + i;
  }
  engine_.wait(a);
  EXPECT_EQ(value, expected);
}

TEST_P(Graphs, RunOpsWithoutVariables) {
  std::atomic<int> runs{0};
  const Graph graph = engine_.capture([&] {
    for (int i = 0; i < 10; ++i) engine_.push([&] { ++runs; }, {});
  });
  graph.launch();
  graph.launch();
  engine_.wait_all();
  EXPECT_EQ(runs, 20);
}

TEST_P(Graphs, MayBeEmpty) {
  const Graph graph = engine_.capture([] {});
  graph.launch();
  engine_.wait_all();
  EXPECT_EQ(graph.size(), 0U);
}

TEST_P(Graphs, MayBeExtended) {
  const Var a = engine_.new_var("a");
  std::string text;
  const Graph graph = engine_.capture([&] { engine_.push([&] { text += 'a'; }, {mutate(a)}); });
  graph.launch();
  graph.append([&] { engine_.push([&] { text += 'b'; }, {mutate(a)}); });
  EXPECT_EQ(graph.size(), 2U);
  graph.launch();
  engine_.wait(a);
  EXPECT_EQ(text, "aab");
}

TEST_P(Graphs, MayBeLaunchedInsideACapture) {
  const Var a = engine_.new_var("a");
  std::string text;
  const Graph inner = engine_.capture([&] { engine_.push([&] { text += 'i'; }, {mutate(a)}); });
  const Graph outer = engine_.capture([&] {
    inner.launch();
    engine_.push([&] { text += 'o'; }, {mutate(a)});
    inner.launch();
  });
  EXPECT_EQ(outer.size(), 3U);
  outer.launch();
  inner.launch();
  engine_.wait(a);
  EXPECT_EQ(text, "ioii");
}

TEST_P(Graphs, MayBeLaunchedFromInsideAnOp) {
  const Var a = engine_.new_var("a"), b = engine_.new_var("b");
  int runs = 0;
  const Graph graph = engine_.capture([&] { engine_.push([&] { ++runs; }, {mutate(a)}); });
  engine_.push([&] { graph.launch(); }, {mutate(b)});
  engine_.wait_all();
  EXPECT_EQ(runs, 1);
}

TEST_P(Graphs, TakeAsyncAndDeclaredOps) {
  const Var a = engine_.new_var("a");
  std::string text;
  const DeclaredOp declared = engine_.declare([&] { text += 'd'; }, {mutate(a)});
  std::vector<std::thread> threads;
  const Graph graph = engine_.capture([&] {
    engine_.push_async(
        [&](OnComplete done) {
          threads.emplace_back([&text, token = std::move(done)]() mutable {
            text += 'a';
            token();
          });
        },
        {mutate(a)});
    engine_.push(declared);
  });
  graph.launch();
  graph.launch();
  engine_.wait(a);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(text, "adad");
}

TEST_P(Graphs, PoisonWhatDependsOnTheOpThatFailedAndNothingElse) {
  const Var a = engine_.new_var("a"), b = engine_.new_var("b"), c = engine_.new_var("c");
  bool fails = true;
  int after = 0, beside = 0;
  const Graph graph = engine_.capture([&] {
    engine_.push(
        [&] {
          if (fails) throw std::runtime_error("broke");
        },
        {mutate(a)}, {.name = "first"});
    engine_.push([&] { ++after; }, {read(a), mutate(b)}, {.name = "second"});
    engine_.push([&] { ++beside; }, {mutate(c)}, {.name = "third"});
  });
  graph.launch();
  const std::string text = error_of<OpError>([&] { engine_.wait(b); });
  EXPECT_NE(text.find("op 'second' (pushed at tests/engine/graph_test.cc"), std::string::npos) << text;
  EXPECT_NE(text.find("because op 'first'"), std::string::npos) << text;
  engine_.wait(c);
  EXPECT_EQ(after, 0);
  EXPECT_EQ(beside, 1);
  EXPECT_THROW(engine_.wait_all(), OpError);
  engine_.wait(c);
  fails = false;
  engine_.heal(a);
  engine_.heal(b);
  graph.launch();
  engine_.wait_all();
  EXPECT_EQ(after, 1);
  EXPECT_EQ(beside, 2);
  EXPECT_EQ(engine_.version(c), 2U);
}

TEST_P(Graphs, MeetPoisonFromOutside) {
  const Var a = engine_.new_var("a"), b = engine_.new_var("b");
  int runs = 0, told = 0;
  const Graph graph = engine_.capture([&] {
    engine_.push([&] { ++runs; }, {read(a), mutate(b)});
    engine_.push([&](OpContext& context) { told += context.failure() != nullptr; }, {mutate(b)}, {.run_always = true});
  });
  engine_.push([] { throw std::runtime_error("broke"); }, {mutate(a)});
  graph.launch();
  EXPECT_THROW(engine_.wait(b), OpError);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(told, 1);
}

TEST_P(Graphs, BeginTheLifeOfTheirOwnVariablesAnewWithEachLaunch) {
  const Var sum = engine_.new_var("sum");
  std::vector<int> seen;
  int buffer = -1, frees = 0;
  bool fails = false;
  Var inner;
  Graph graph = engine_.capture([&] {
    inner = engine_.new_var("inner");
    engine_.push([&] { buffer = fails ? throw std::runtime_error("broke") : 7; }, {mutate(inner)});
    engine_.push([&] { seen.push_back(buffer); }, {read(inner), mutate(sum)});
    engine_.retire(inner, [&] { ++frees, buffer = -1; });
  });
  for (int i = 0; i < 3; ++i) {
    fails = i == 1;
    graph.launch();
    if (fails) {
      EXPECT_THROW(engine_.wait(sum), OpError);
      engine_.heal(sum);
    }
    engine_.wait(sum);
  }
  engine_.wait_all_for(patience);
  EXPECT_EQ(seen, (std::vector<int>{7, 7}));
  EXPECT_EQ(frees, 3);
  EXPECT_THROW(engine_.push([] {}, {read(inner)}), MisuseError);
}

TEST_P(Graphs, RetireAVariableFromOutsideOnce) {
  const Var a = engine_.new_var("a");
  int frees = 0;
  const Graph graph = engine_.capture([&] { engine_.retire(a, [&] { ++frees; }); });
  engine_.push([] {}, {mutate(a)});
  graph.launch();
  const std::string text = error_of<MisuseError>([&] { graph.launch(); });
  EXPECT_NE(text.find("variable 'a', which was retired"), std::string::npos) << text;
  EXPECT_THROW(engine_.push([] {}, {read(a)}), MisuseError);
  engine_.wait_all();
  EXPECT_EQ(frees, 1);
  const Var next = engine_.new_var("next");  // in the same place
  engine_.push([] {}, {mutate(next)});
  engine_.wait(next);
  EXPECT_EQ(engine_.version(next), 1U);
}

TEST_P(Graphs, AreNotChangedByACaptureThatThrows) {
  const Var a = engine_.new_var("a");
  int runs = 0;
  const Graph graph = engine_.capture([&] { engine_.push([&] { ++runs; }, {mutate(a)}); });
  const auto broken = [&] {
    engine_.push([&] { ++runs; }, {mutate(a)});
    throw std::runtime_error("broke");
  };
  EXPECT_THROW(graph.append(broken), std::runtime_error);
  EXPECT_THROW(engine_.capture(broken), std::runtime_error);
  engine_.push([&] { runs += 10; }, {mutate(a)});  // the capture is over
  graph.launch();
  engine_.wait(a);
  EXPECT_EQ(runs, 11);
}

TEST_P(Graphs, RefuseWhatMakesNoSense) {
  const Var a = engine_.new_var("a");
  EXPECT_THROW(Graph().launch(), MisuseError);
  EXPECT_THROW(engine_.capture(nullptr), MisuseError);
  engine_.capture([&] {
    EXPECT_THROW(engine_.wait(a), MisuseError);
    EXPECT_THROW(engine_.wait_all(), MisuseError);
    EXPECT_THROW(engine_.capture([] {}), MisuseError);
    EXPECT_THROW(engine_.push([] {}, {read(Var())}), MisuseError);
    const Var b = engine_.new_var("b");
    engine_.retire(b);
    const std::string text = error_of<MisuseError>([&] { engine_.push([] {}, {read(b)}); });
    EXPECT_NE(text.find("retired earlier in the capture"), std::string::npos) << text;
  });
  const Graph graph = engine_.capture([&] { engine_.push([] {}, {mutate(a)}); });
  engine_.shutdown();
  EXPECT_THROW(graph.launch(), MisuseError);
}

TEST_P(Graphs, KeepCapturesAsLongAsTheyOrLaunchesLive) {
  const auto token = std::make_shared<int>(0);
  const Var a = engine_.new_var("a");
  {
    Graph graph = engine_.capture([&] { engine_.push([token] { ++*token; }, {mutate(a)}); });
    graph.launch();
    graph.launch();
  }
  engine_.wait_all();
  EXPECT_EQ(*token, 2);
  EXPECT_EQ(token.use_count(), 1);
}

TEST_P(Graphs, MayOutliveTheirEngine) {
  const auto token = std::make_shared<int>(0);
  Graph graph;
  {
    Engine engine(options());
    graph = engine.capture([&] {
      const Var inner = engine.new_var("inner");
      engine.push([token] { ++*token; }, {mutate(inner)});
      engine.retire(inner);
    });
    graph.launch();
  }
  EXPECT_EQ(*token, 1);
  graph = {};
  EXPECT_EQ(token.use_count(), 1);
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

}  // namespace
}  // namespace windrow::testing
