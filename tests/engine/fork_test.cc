// What fork() makes of an engine. Each test forks; the child works and ends with a status.
#include "fork_child.h"
#include "sim_device.h"
#include "windrow/engine/parallel.h"

#if defined(__SANITIZE_THREAD__)
/// A child may start threads: ours starts with none of them in the middle of anything.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace windrow::testing {
namespace {

class ForkTest : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(ForkTest);
class ForkedEngines : public EveryPolicy {};
WINDROW_EVERY_POLICY(ForkedEngines);

TEST_P(ForkTest, AnEngineThatNeverPushedWorksInTheChild) {
  const Child child([&] { CHILD_EXPECT(works(engine)); });
  EXPECT_TRUE(works(engine));
}

TEST_P(ForkedEngines, TheChildHasTheValuesAndGoesOn) {
  auto engine = std::make_unique<Engine>(options());
  const Var v = engine->new_var("v");
  int value = 0;
  count_up(*engine, v, value, 300);
  {
    const Child child([&] {
      CHILD_EXPECT(value == 300);
      CHILD_EXPECT(engine->version(v) == 300);
      CHILD_EXPECT(engine->stats().pending == 0);
      count_up(*engine, v, value, 100);
      CHILD_EXPECT(engine->wait_for({read(v)}, patience));
      CHILD_EXPECT(value == 400);
      CHILD_EXPECT(works(*engine));
      engine.reset();
    });
    count_up(*engine, v, value, 1);
    engine->wait(v);
    EXPECT_EQ(value, 301);
  }
  EXPECT_TRUE(works(*engine));
}

TEST_P(ForkTest, AChildMayForkAgain) {
  EXPECT_TRUE(works(engine));
  const Child child([&] {
    CHILD_EXPECT(works(engine));
    const pid_t id = fork_at_rest();
    if (id == 0) {
      Child::run([&] { CHILD_EXPECT(works(engine)); });
      _exit(0);
    }
    CHILD_EXPECT(Child(id).status() == 0);
    CHILD_EXPECT(works(engine));
  });
}

TEST_P(ForkTest, PoisonIsCopied) {
  engine.push([] { throw std::runtime_error("broken"); }, {mutate(a)}, {.name = "breaks"});
  const Child child([&] {
    CHILD_EXPECT(error_of<OpError>([&] { engine.wait(a); }).find("broken") != std::string::npos);
    engine.heal(a);
    engine.wait(a);
  });
  error_of<OpError>([&] { engine.wait(a); });
}

TEST_P(ForkedEngines, AChildMayEndByExit) {
  static std::unique_ptr<Engine> engine;  // ends with the process
  engine = std::make_unique<Engine>(options());
  EXPECT_TRUE(works(*engine));
  const Child child([&] {
    CHILD_EXPECT(works(*engine));
    engine.reset();
    std::quick_exit(0);
  });
  engine.reset();
}

/// Forks while threads call `bodies` again and again; the child runs its own body.
void fork_beside(int forks, const std::vector<std::function<void()>>& bodies, const std::function<void()>& in_child) {
  std::atomic<bool> stop{false};
  std::vector<std::jthread> threads;
  for (const auto& body : bodies) {
    threads.emplace_back([&] {
      while (!stop) body();
    });
  }
  for (int i = 0; i < forks; ++i) const ChildBesideThreads child(in_child);
  stop = true;
}

/// Two engines, since ThreadSanitizer counts up to 64 mutexes that a thread holds, and a fork takes those of all
/// engines.
TEST_P(ForkedEngines, EveryEngineOfTheProcessIsCopied) {
  Engine one(options()), two({.policy = Policy::pool, .workers = 2});
  const Var a = one.new_var(), b = two.new_var();
  int in_a = 0, in_b = 0;
  for (int i = 0; i < 50; ++i) {
    one.push([&] { two.push([&] { ++in_b; }, {mutate(b)}), ++in_a; }, {mutate(a)});
  }
  const Child child([&] {
    CHILD_EXPECT(in_a == 50 && in_b == 50);
    CHILD_EXPECT(works(one) && works(two));
  });
  one.wait_all();
  two.wait_all();
}

TEST_P(ForkedEngines, ThreadsThatPushAndWaitGoOn) {
  Engine engine(options({.max_pending_ops = 64}));
  struct Pusher {
    Var v;
    std::uint64_t pushed = 0, count = 0;
  };
  std::array<Pusher, 3> pushers;
  std::vector<std::function<void()>> bodies;
  for (Pusher& my : pushers) {
    my.v = engine.new_var();
    bodies.emplace_back([&engine, &my, pauses = !bodies.empty()] {
      engine.push([&my] { ++my.count; }, {mutate(my.v)});
      ++my.pushed;
      if (!pauses) return;  // so there always is something pending
      if (my.pushed % 7 == 0) engine.retire(engine.new_var("short-lived"));
      if (my.pushed % 16 == 0) engine.wait(my.v);
      if (my.pushed % 50 == 0) engine.stats();
      if (my.pushed % 64 == 0) engine.wait_all();
    });
  }
  fork_beside(20, bodies, [&] {
    CHILD_EXPECT(works(engine));
    engine.shutdown();
  });
  for (const Pusher& each : pushers) {
    engine.wait(each.v);
    EXPECT_EQ(engine.version(each.v), each.pushed);
    EXPECT_EQ(each.count, each.pushed);
  }
}

TEST_P(ForkTest, SoDoThreadsThatExchangeLargeFunctions) {
  const auto exchange = [] {
    std::vector<Function<std::size_t()>> many;  // more than a thread keeps
    for (std::size_t i = 0; i < 100; ++i)
      many.emplace_back([numbers = std::array<std::size_t, 20>{i}] { return numbers[0]; });
    std::size_t sum = 0;
    for (auto& each : many) sum += each();
    return sum == 4950;
  };
  std::atomic<bool> good{true};
  const auto body = [&] { good = good && exchange(); };
  fork_beside(20, {body, body}, [&] {
    CHILD_EXPECT(exchange());
    CHILD_EXPECT(works(engine));
  });
  EXPECT_TRUE(good);
}

TEST_P(ForkedEngines, SoDoThreadsWhoseOpsOthersComplete) {
  Engine engine(options({.max_pending_ops = 20}));
  Tokens tokens;
  const std::jthread completes([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) tokens.complete_one() ? void() : std::this_thread::yield();
  });
  const Var v = engine.new_var();
  int ends = 0;
  const auto push = [&] {
    engine.push_async(tokens.taker(), {mutate(v)});
    engine.push([&] { ++ends; }, {mutate(v)});
  };
  fork_beside(10, {push}, [&] { CHILD_EXPECT(works(engine)); });
  engine.wait(v);
}

TEST_P(ForkTest, ACaptureMayForkAndGraphsAreLaunchedInTheChild) {
  int value = 0;
  pid_t id = -1;
  const Graph before = engine.capture([&] { engine.push([&] { ++value; }, {mutate(a)}); });
  for (int i = 0; i < 10; ++i) before.launch();
  const Graph graph = engine.capture([&] {
    engine.push([&] { ++value; }, {mutate(a)});
    id = fork_at_rest();
    if (id == 0) Child::use_fresh_stacks();
    engine.push([&] { ++value; }, {mutate(a)});
  });
  before.launch();
  graph.launch();
  EXPECT_TRUE(engine.wait_for({read(a)}, patience));
  if (id == 0) _exit(value == 13 ? 0 : 1);
  const Child child(id);
  EXPECT_EQ(value, 13);
}

TEST_P(ForkTest, AnEngineThatHasEndedStaysSo) {
  EXPECT_TRUE(works(engine));
  engine.shutdown();
  const Child child([&] {
    CHILD_EXPECT(refuses([&] { engine.push([] {}, {mutate(a)}); }));
    engine.shutdown();
  });
}

TEST_P(ForkTest, AnEngineThatShutdownForHasNotEndedWorksInTheChild) {
  HeldOp held(engine, {mutate(a)});
  EXPECT_FALSE(engine.shutdown_for(0s, [](const std::string&) {}));
  held.complete();
  EXPECT_TRUE(comes_true([&] { return engine.stats().pending == 0; }));
  const Child child([&] { CHILD_EXPECT(works(engine)); });
}

TEST_P(ForkedEngines, BackPressureBeginsAnew) {
  Engine engine(options({.max_pending_ops = 20, .max_pending_bytes = 1000}));
  const auto fill = [&] {
    for (int i = 0; i < 2000; ++i) engine.push([] {}, {}, {.bytes = 100});
    return engine.wait_all_for(patience) && engine.stats().pending_bytes == 0;
  };
  fork_beside(5, {[&] { engine.push([] {}, {}, {.bytes = 300}); }}, [&] { CHILD_EXPECT(fill()); });
  EXPECT_TRUE(fill());
}

TEST_P(ForkTest, LoopsRunInTheChild) {
  const auto sum = [this] {
    std::atomic<int> pieces{0};
    engine.push([&] { parallel_for(1000, 1, [&](std::size_t, std::size_t) { ++pieces; }); }, {});
    engine.wait_all();
    return pieces.load();
  };
  EXPECT_EQ(sum(), 1000);
  const Child child([&] {
    for (int i = 0; i < 10; ++i) CHILD_EXPECT(sum() == 1000);
  });
}

TEST_P(ForkedEngines, TheWatchdogLooksAgain) {
  std::atomic<int> told{0};
  Engine engine(options({.watchdog = 5ms, .on_silence = [&](const std::string&) { ++told; }}));
  EXPECT_TRUE(works(engine));
  const Child child([&] {
    const Var v = engine.new_var();
    const int before = told;
    HeldOp held(engine, {mutate(v)});
    CHILD_EXPECT(comes_true([&] { return told > before; }));
    held.complete();
    engine.wait(v);
  });
}

TEST_P(ForkTest, ATracedEngineIsCopied) {
  engine.trace().start();
  EXPECT_TRUE(works(engine));
  const Child child([&] {
    CHILD_EXPECT(works(engine));
    engine.trace().stop();
    CHILD_EXPECT(!engine.trace().summary().ops.empty());
  });
}

}  // namespace
}  // namespace windrow::testing
