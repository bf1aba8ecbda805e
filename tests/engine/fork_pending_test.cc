// Forks while ops are pending, inside ops, and with devices.
#include "fork_child.h"
#include "sim_device.h"

namespace windrow::testing {
namespace {

class TornForkTest : public EveryPolicy {};
WINDROW_EVERY_POLICY(TornForkTest);

class ThreadedForkTest : public EveryPolicy {};
WINDROW_THREADED_POLICIES(ThreadedForkTest);

/// Everything that is asked of an engine whose ops were lost.
void expect_unusable(Engine& engine, Var v, const Graph& graph) {
  CHILD_EXPECT(refuses([&] { engine.push([] {}, {mutate(v)}); }));
  CHILD_EXPECT(refuses([&] { engine.push_async([](OnComplete) {}, {mutate(v)}); }));
  CHILD_EXPECT(refuses([&] { engine.wait(v); }));
  CHILD_EXPECT(refuses([&] { engine.wait_for({read(v)}, 1ms); }));
  CHILD_EXPECT(refuses([&] { engine.wait_all(); }));
  CHILD_EXPECT(refuses([&] { engine.new_var(); }));
  CHILD_EXPECT(refuses([&] { engine.heal(v); }));
  CHILD_EXPECT(refuses([&] { engine.version(v); }));
  CHILD_EXPECT(refuses([&] { engine.describe_pending(); }));
  CHILD_EXPECT(refuses([&] { engine.capture([] {}); }));
  CHILD_EXPECT(refuses([&] { graph.launch(); }));
  engine.retire(v);
  engine.stats();
  engine.shutdown();
}

TEST_P(TornForkTest, OpsThatCannotFinishDoNotRunInTheChild) {
  auto engine = std::make_unique<Engine>(options({.fork_patience = 20ms}));
  const Var v = engine->new_var();
  const Graph graph = engine->capture([&] { engine->push([] {}, {mutate(v)}); });
  HeldOp held(*engine, {mutate(v)});
  int ran = 0;
  engine->push([&] { ++ran; }, {mutate(v)});
  {
    const Child child([&] {
      expect_unusable(*engine, v, graph);
      Engine fresh(options());
      CHILD_EXPECT(works(fresh));
      held.complete();
      CHILD_EXPECT(works(fresh));
      engine.reset();
      CHILD_EXPECT(ran == 0);
    });
  }
  held.complete();
  engine->wait(v);
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(works(*engine));
}

TEST_P(TornForkTest, AForkInsideAnOpDoesNotWait) {
  Engine engine(options({.fork_patience = 1h})), idle(options());
  EXPECT_TRUE(works(idle));
  const Var v = engine.new_var();
  const Graph graph = engine.capture([&] { engine.push([] {}, {mutate(v)}); });
  pid_t id = -1;
  bool later = false;
  engine.push(
      [&] {
        id = fork_at_rest();
        if (id != 0) return;
        Child::run([&] {
          expect_unusable(engine, v, graph);
          if (GetParam().policy != Policy::serial) CHILD_EXPECT(works(idle));
        });
        _exit(0);
      },
      {mutate(v)});
  engine.push([&] { later = true; }, {mutate(v)});
  EXPECT_TRUE(engine.wait_for({read(v)}, patience));
  EXPECT_TRUE(later);
  const Child child(id);
}

TEST_P(TornForkTest, AnOpMayForkAndExec) {
  Engine engine(options());
  const Var v = engine.new_var();
  pid_t id = -1;
  int by_system = -1;
  engine.push(
      [&] {
        id = fork_at_rest();
        if (id == 0) execl("/bin/sh", "sh", "-c", "exit 0", nullptr), _exit(1);
        by_system = std::system("exit 0");
      },
      {mutate(v)});
  EXPECT_TRUE(engine.wait_for({read(v)}, patience));
  EXPECT_EQ(by_system, 0);
  const Child child(id);
}

TEST_P(ThreadedForkTest, AnOpThatReturnsInTheChildEndsIt) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer does not survive that the last thread, which is not main's, ends";
#elif defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "what main holds, which does not exist in such a child, counts as leaked at its end";
#endif
  Engine engine(options());
  const Var v = engine.new_var();
  std::atomic<pid_t> id{-1};
  const auto not_in_the_child = [&] {
    if (id == 0) _exit(1);
  };
  const auto push = [&] {
    engine.push([&] { id = fork_at_rest(); }, {mutate(v)});
    for (int i = 0; i < 10; ++i) engine.push(not_in_the_child, {mutate(v)});
  };
  push();
  const Graph graph = engine.capture(push);
  EXPECT_TRUE(engine.wait_for({read(v)}, patience));
  EXPECT_EQ(Child(id).status(), 0);
  graph.launch();
  EXPECT_TRUE(engine.wait_for({read(v)}, patience));
  const Child child(id);
}

TEST(SerialForkTest, AnOpThatReturnsInTheChildReturnsFromThePush) {
  Engine engine({.policy = Policy::serial});
  const Var v = engine.new_var();
  pid_t id = -1;
  engine.push(
      [&] {
        engine.push(
            [&] {
              if (id == 0) _exit(1);
            },
            {mutate(v)});
        id = fork_at_rest();
      },
      {mutate(v)});
  if (id == 0) _exit(refuses([&] { engine.push([] {}, {mutate(v)}); }) ? 0 : 1);
  const Child child(id);
  engine.wait(v);
}

// ---- devices ----

TEST_P(TornForkTest, LanesOfTheParentAreRefusedInTheChild) {
  auto device = std::make_shared<SimLane>("device");
  auto engine = std::make_unique<Engine>(options());
  const LaneId lane = engine->add_lane(device);
  const Var v = engine->new_var();
  int value = 0;
  engine->push([&] { device->launch([&] { value = 7; }); }, {mutate(v)}, {.lane = lane});
  {
    const Child child([&] {
      CHILD_EXPECT(engine->wait_for({read(v)}, patience));
      CHILD_EXPECT(value == 7);
      const std::string text = error_of<MisuseError>([&] { engine->push([] {}, {mutate(v)}, {.lane = lane}); });
      CHILD_EXPECT(text.find("'device'") != std::string::npos && text.find("fork") != std::string::npos);
      engine->push([&] { ++value; }, {mutate(v)});
      CHILD_EXPECT(engine->wait_all_for(patience));
      CHILD_EXPECT(value == 8);
      const auto fresh = std::make_shared<SimLane>("fresh");
      const LaneId on_fresh = engine->add_lane(fresh);
      engine->push([&] { fresh->launch([&] { ++value; }); }, {mutate(v)}, {.lane = on_fresh});
      CHILD_EXPECT(engine->wait_for({read(v)}, patience));
      CHILD_EXPECT(value == 9);
      engine.reset();
      device.reset();
    });
  }
  engine->push([&] { device->launch([&] { ++value; }); }, {mutate(v)}, {.lane = lane});
  engine->wait(v);
  EXPECT_EQ(value, 8);
}

TEST_P(ThreadedForkTest, ALaneThatIsBehindIsAwaited) {
  const auto device = std::make_shared<SimLane>("device");
  Engine engine(options({.fork_patience = 20ms}));
  const LaneId lane = engine.add_lane(device);
  const Var v = engine.new_var();
  device->hold();
  engine.push([&] { device->launch([] {}); }, {mutate(v)}, {.lane = lane});
  {
    const Child child([&] { CHILD_EXPECT(refuses([&] { engine.wait(v); })); });
  }
  device->let_go();
  engine.wait(v);
  const Child child([&] { CHILD_EXPECT(engine.wait_for({read(v)}, patience)); });
}

}  // namespace
}  // namespace windrow::testing
