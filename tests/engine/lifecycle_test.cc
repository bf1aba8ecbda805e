// Beginnings and ends: variables, engines, handles kept too long, wrong calls.
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "support.h"

namespace windrow::testing {
namespace {

class LifecycleTest : public EveryPolicy {};
WINDROW_EVERY_POLICY(LifecycleTest);

TEST_P(LifecycleTest, RetireRunsItsFunctionAfterTheLastUser) {
  Engine engine(options());
  const Var v = engine.new_var();
  auto data = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = data;
  for (int i = 0; i < 10; ++i) {
    engine.push([p = data.get()] { std::this_thread::sleep_for(100us), ++*p; }, {mutate(v)});
  }
  engine.retire(v, [data = std::move(data)]() mutable {
    EXPECT_EQ(*data, 10);
    data.reset();
  });
  engine.wait_all();
  EXPECT_TRUE(watch.expired());
}

TEST_P(LifecycleTest, ARetiredVariableIsRefusedAtOnceAndForEver) {
  Engine engine(options());
  const Var v = engine.new_var("v");
  engine.retire(v);
  const auto push = [&] { engine.push([] {}, {mutate(v)}, {.name = "late"}); };
  const std::string text = error_of<MisuseError>(push);
  EXPECT_NE(text.find("op 'late' (pushed at "), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("names variable 'v', which was retired") ||
              text.ends_with("a variable, which was retired"))
      << text;
  engine.wait_all();
  const Var w = engine.new_var();  // takes the record over
  EXPECT_THROW(push(), MisuseError);
  EXPECT_THROW(engine.wait(v), MisuseError);
  EXPECT_THROW(engine.retire(v), MisuseError);
  EXPECT_THROW(engine.heal(v), MisuseError);
  EXPECT_THROW(engine.version(v), MisuseError);
  engine.push([] {}, {mutate(w)});
  engine.wait_all();
  EXPECT_EQ(engine.version(w), 1u);
}

TEST_P(LifecycleTest, ARecycledVariableStartsAnew) {
  Engine engine(options());
  const Var v = engine.new_var();
  engine.push([] { throw std::runtime_error("old"); }, {mutate(v)});
  engine.retire(v);
  EXPECT_THROW(engine.wait_all(), OpError);
  const Var w = engine.new_var();
  engine.wait(w);
  EXPECT_EQ(engine.version(w), 0u);
}

TEST_P(LifecycleTest, ARetireOfAPoisonedVariableRuns) {
  Engine engine(options());
  const Var v = engine.new_var();
  bool freed = false;
  engine.push([] { throw std::runtime_error("no"); }, {mutate(v)});
  engine.retire(v, [&] { freed = true; });
  EXPECT_THROW(engine.wait_all(), OpError);
  EXPECT_TRUE(freed);
}

TEST_P(LifecycleTest, ShutdownDrainsAndTwiceIsFine) {
  Engine engine(options());
  const Var v = engine.new_var();
  int value = 0;
  for (int i = 0; i < 100; ++i) engine.push([&] { ++value; }, {mutate(v)});
  engine.shutdown();
  EXPECT_EQ(value, 100);
  engine.shutdown();
  EXPECT_NE(error_of<MisuseError>([&] { engine.push([] {}, {mutate(v)}); }).find("after shutdown"), std::string::npos);
  engine.wait(v);
  engine.wait_all();
  EXPECT_EQ(engine.version(v), 100u);
}

TEST_P(LifecycleTest, OpsMayPushAndRetireWhileTheEngineDrains) {
  std::atomic<int> freed{0};
  {
    Engine engine(options());
    const Var v = engine.new_var();
    for (int i = 0; i < 20; ++i) {
      engine.push(
          [&engine, &freed] {
            const Var inner = engine.new_var();
            engine.push([] {}, {mutate(inner)});
            engine.retire(inner, [&] { ++freed; });
          },
          {mutate(v)});
    }
  }
  EXPECT_EQ(freed, 20);
}

TEST_P(LifecycleTest, AfterShutdownARetireRunsAtOnceOnTheCaller) {
  Engine engine(options());
  const Var a = engine.new_var(), b = engine.new_var();
  engine.push([] {}, {mutate(a)});
  engine.shutdown();
  std::thread::id where;
  engine.retire(a, [&] {
    where = std::this_thread::get_id();
    engine.retire(b);
  });
  EXPECT_EQ(where, std::this_thread::get_id());
  EXPECT_THROW(engine.wait(a), MisuseError);
}

TEST_P(LifecycleTest, AnEngineThatWasNeverUsedEnds) {
  Engine engine(options());
  engine.wait_all();
}

TEST_P(LifecycleTest, ThreadsCreateAndRetireAtWill) {
  Engine engine(options());
  const Var shared = engine.new_var();
  std::atomic<int> freed{0};
  int sum = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) {
          const Var mine = engine.new_var();
          auto* cell = new int(1);
          engine.push([&sum, cell] { sum += *cell; }, {read(mine), mutate(shared)});
          engine.retire(mine, [cell, &freed] {
            delete cell;
            ++freed;
          });
        }
      });
    }
  }
  engine.wait_all();
  EXPECT_EQ(sum, 400);
  EXPECT_EQ(freed, 400);
}

TEST_P(LifecycleTest, WrongCallsAreNamed) {
  Engine engine(options()), other(options());
  const Var foreign = other.new_var();
  const auto text = [&](auto&& call) { return error_of<MisuseError>(call); };
  const auto ends = [](const std::string& line, const std::string& end) { EXPECT_TRUE(line.ends_with(end)) << line; };
  ends(text([&] { engine.push([] {}, {mutate(Var())}); }), "names an empty Var; make it with Engine::new_var");
  ends(text([&] { engine.push([] {}, {mutate(foreign)}); }), "names a variable of another engine");
  const LaneId lane = other.add_lane(HostLane{.name = "lane"});
  ends(text([&] { engine.push([] {}, {}, {.lane = lane}); }), "names a lane of another engine");
  ends(text([&] { engine.push(DeclaredOp()); }), "push of an empty DeclaredOp; make it with Engine::declare");
  ends(text([&] { engine.push(other.declare([] {}, {})); }), "push of a DeclaredOp of another engine");
  void (*no_function)() = nullptr;
  ends(text([&] { engine.push(no_function, {}); }), "was given no function");
  ends(text([&] { engine.push(std::function<void()>(), {}); }), "was given no function");
  ends(text([&] { engine.declare(nullptr, {}); }), "was given no function");
  ends(text([&] { engine.push_async(nullptr, {}); }), "was given no function");
  ends(text([&] { engine.add_lane(std::shared_ptr<Lane>()); }), "add_lane was given a null Lane");
  ends(text([&] { engine.add_lane(HostLane{.name = "copy", .threads = 0}); }),
       "lane 'copy' has threads = 0; expected 1 or more");
  EXPECT_EQ(engine.stats().pushed, 0u);
}

TEST_P(LifecycleTest, WaitingForEverythingInsideAnOpIsMisuse) {
  Engine engine(options());
  std::string wait_text, shutdown_text;
  engine.push(
      [&] {
        wait_text = error_of<MisuseError>([&] { engine.wait_all(); });
        shutdown_text = error_of<MisuseError>([&] { engine.shutdown(); });
      },
      {}, {.name = "greedy"});
  engine.wait_all();
  EXPECT_NE(wait_text.find("wait_all inside op 'greedy' would wait for that op itself"), std::string::npos);
  EXPECT_NE(shutdown_text.find("shutdown inside op 'greedy'"), std::string::npos);
}

TEST_P(LifecycleTest, ARetireBesideAShutdownIsNeitherRefusedNorLost) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> freed{0};
    Engine engine(options());
    std::vector<Var> vars;
    for (int i = 0; i < 50; ++i) vars.push_back(engine.new_var());
    {
      std::jthread other([&] {
        for (const Var v : vars) engine.retire(v, [&] { ++freed; });
      });
      engine.push([] {}, {});
      engine.shutdown();
    }
    EXPECT_EQ(freed, 50);
  }
}

TEST_P(LifecycleTest, WhatARetireDoesAfterShutdownMayRetireButNotPush) {
  Engine engine(options());
  const Var a = engine.new_var(), b = engine.new_var();
  engine.push([] {}, {mutate(a)});
  engine.shutdown();
  bool inner = false;
  engine.retire(a, [&] {
    EXPECT_THROW(engine.push([] {}, {}), MisuseError);
    engine.retire(b, [&] { inner = true; });
  });
  EXPECT_TRUE(inner);
}

TEST_P(LifecycleTest, AnOpMayHoldTheLastOwnerOfItsEngine) {
  struct Watch {
    std::shared_ptr<Gate> gate;
    ~Watch() { gate->open(); }
  };
  for (const bool async : {false, true}) {
    const auto ended = std::make_shared<Gate>(), pushed = std::make_shared<Gate>();
    EngineOptions watched = options();
    watched.on_thread_start = [watch = std::make_shared<Watch>(ended)] {};  // kept as long as the engine lives
    auto engine = std::make_shared<Engine>(std::move(watched));
    Engine& alive = *engine;
    const Var v = alive.new_var();
    std::jthread completer;
    if (async) {
      alive.push_async(
          [engine = std::move(engine), &completer, pushed](OnComplete done) {
            completer = std::jthread([pushed, done = std::move(done)]() mutable {
              EXPECT_TRUE(pushed->pass());
              done();
            });
          },
          {mutate(v)});
    } else {
      // A serial engine runs the op, and loses its owner, inside this push.
      if (GetParam().policy == Policy::serial) pushed->open();
      alive.push([engine = std::move(engine), pushed] { EXPECT_TRUE(pushed->pass()); }, {mutate(v)});
    }
    pushed->open();
    EXPECT_TRUE(ended->pass());
  }
}

TEST_P(LifecycleTest, CapturesThatEndOnACompletingThreadMayPushWhileTheEngineDrains) {
  int freed = 0;
  {
    Engine engine(options());
    const Var v = engine.new_var();
    struct Owner {
      Engine* engine;
      int* freed;
      ~Owner() {
        const Var inner = engine->new_var();
        engine->push([freed = freed] { ++*freed; }, {mutate(inner)});
        engine->retire(inner);
      }
    };
    std::jthread completer;
    engine.push_async(
        [&completer, owner = std::make_unique<Owner>(&engine, &freed)](OnComplete done) {
          completer = std::jthread([done = std::move(done)]() mutable {
            std::this_thread::sleep_for(10ms);  // shutdown has begun
            done();
          });
        },
        {mutate(v)});
    engine.shutdown();
  }
  EXPECT_EQ(freed, 1);
}

TEST_P(LifecycleTest, CapturesOfARefusedPushEndOutsideTheEngine) {
  Engine engine(options());
  const Var v = engine.new_var();
  engine.retire(v);
  struct Owner {
    Engine* engine;
    ~Owner() { EXPECT_TRUE(engine->wait_all_for(patience)); }
  };
  EXPECT_THROW(engine.push([owner = std::make_unique<Owner>(&engine)] {}, {read(v)}), MisuseError);
  auto last = std::make_shared<Engine>(options());
  Engine& alive = *last;
  const Var w = alive.new_var();
  alive.retire(w);
  EXPECT_THROW(alive.push([last = std::move(last)] {}, {read(w)}), MisuseError);
}

TEST_P(LifecycleTest, AnEngineMayLiveAndEndInsideAnOpOfAnother) {
  Engine engine(options());
  const Var v = engine.new_var();
  int value = 0;
  engine.push(
      [&] {
        Engine local(options());
        const Var inner = local.new_var();
        local.push(
            [&] {
              const Var w = engine.new_var();
              engine.push([&] { ++value; }, {mutate(w)});
              engine.wait(w);
              engine.retire(w);
            },
            {mutate(inner)});
      },
      {mutate(v)});
  ASSERT_TRUE(engine.wait_for({read(v)}, patience));
  EXPECT_EQ(value, 1);
}

TEST(EngineOptionsTest, OutOfRangeIsNamed) {
  EXPECT_EQ(error_of<MisuseError>([] { Engine engine({.workers = 0}); }),
            "EngineOptions.workers = 0; expected 1 or more");
  EXPECT_EQ(error_of<MisuseError>([] { Engine engine({.max_pending_ops = 0}); }),
            "EngineOptions.max_pending_ops = 0; expected 1 or more");
  EXPECT_EQ(error_of<MisuseError>([] { Engine engine({.max_spare_threads = -1}); }),
            "EngineOptions.max_spare_threads = -1; expected 0 or more");
  EXPECT_EQ(error_of<MisuseError>([] { parse_policy("fast"); }),
            "unknown policy 'fast'; expected serial, pool, per_device or chaos");
  for (const char* name : {"serial", "pool", "per_device", "chaos"}) EXPECT_EQ(to_string(parse_policy(name)), name);
}

}  // namespace
}  // namespace windrow::testing
