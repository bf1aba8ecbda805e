// Beginnings and ends: variables, engines, handles kept too long, wrong calls.
#include <unistd.h>

#include <cstdlib>

#include "support.h"
#include "windrow/engine/internal/process_exit.h"

namespace windrow::testing {
namespace {

class LifecycleTest : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(LifecycleTest);

TEST_P(LifecycleTest, ARetiredVariableIsRefusedAtOnceAndForEver) {
  engine.retire(a);
  const auto push = [&] { engine.push([] {}, {mutate(b), mutate(a)}, {.name = "late"}); };
  const std::string text = expect_error<MisuseError>(push, "op 'late' (pushed at ");
  EXPECT_TRUE(text.ends_with("names variable 'a', which was retired") ||
              text.ends_with("a variable, which was retired"))
      << text;
  engine.wait_all();
  engine.wait({mutate(b)});
  EXPECT_EQ(engine.version(b), 0u) << "a refused push has changed something";
  const Var w = engine.new_var();  // takes the record over
  EXPECT_THROW(push(), MisuseError);
  EXPECT_THROW(engine.wait(a), MisuseError);
  EXPECT_THROW(engine.retire(a), MisuseError);
  EXPECT_THROW(engine.heal(a), MisuseError);
  EXPECT_THROW(engine.version(a), MisuseError);
  engine.push([] {}, {mutate(w)});
  engine.wait_all();
  EXPECT_EQ(engine.version(w), 1u);
}

TEST_P(LifecycleTest, ShutdownDrainsAndTwiceIsFine) {
  int value = 0;
  for (int i = 0; i < 100; ++i) engine.push([&] { ++value; }, {mutate(a)});
  engine.shutdown();
  EXPECT_EQ(value, 100);
  engine.shutdown();
  expect_error<MisuseError>([&] { engine.push([] {}, {mutate(a)}); }, "after shutdown");
  engine.wait(a);
  engine.wait_all();
  EXPECT_EQ(engine.version(a), 100u);
}

TEST_P(LifecycleTest, OpsMayPushAndRetireWhileTheEngineDrains) {
  std::atomic<int> freed{0};
  {
    Engine drained(options());
    const auto op = [&] {
      const Var inner = drained.new_var();
      drained.push([] {}, {mutate(inner)});
      drained.retire(inner, [&] { ++freed; });
    };
    for (int i = 0; i < 20; ++i) drained.push(op, {});
  }
  EXPECT_EQ(freed, 20);
}

TEST_P(LifecycleTest, AfterShutdownARetireRunsAtOnceOnTheCallerAndMayRetireButNotPush) {
  engine.push([] {}, {mutate(a)});
  engine.shutdown();
  std::thread::id where;
  bool inner = false;
  engine.retire(a, [&] {
    where = std::this_thread::get_id();
    EXPECT_THROW(engine.push([] {}, {}), MisuseError);
    engine.retire(b, [&] { inner = true; });
  });
  EXPECT_EQ(where, std::this_thread::get_id());
  EXPECT_TRUE(inner);
  EXPECT_THROW(engine.wait(a), MisuseError);
}

TEST_P(LifecycleTest, WrongCallsAreNamed) {
  Engine other(options());
  const Var foreign = other.new_var();
  const auto ends = [](const std::function<void()>& call, const std::string& end) {
    const std::string text = error_of<MisuseError>(call);
    EXPECT_TRUE(text.ends_with(end)) << text;
  };
  ends([&] { engine.push([] {}, {mutate(Var())}); },
       "names an empty Var, or a value that was moved from; expected one of Engine::new_var");
  ends([&] { engine.push([] {}, {mutate(foreign)}); },
       "names a variable of another engine; expected one that this engine made");
  const LaneId lane = other.add_lane(HostLane{.name = "lane"});
  ends([&] { engine.push([] {}, {}, {.lane = lane}); }, "names a lane of another engine");
  ends([&] { engine.push(DeclaredOp()); }, "push of an empty DeclaredOp; make it with Engine::declare");
  ends([&] { engine.push(other.declare([] {}, {})); }, "push of a DeclaredOp of another engine");
  void (*no_function)() = nullptr;
  ends([&] { engine.push(no_function, {}); }, "was given no function");
  ends([&] { engine.push(std::function<void()>(), {}); }, "was given no function");
  ends([&] { engine.declare(nullptr, {}); }, "was given no function");
  ends([&] { engine.push_async(nullptr, {}); }, "was given no function");
  ends([&] { engine.add_lane(std::shared_ptr<Lane>()); }, "add_lane was given a null Lane");
  ends([&] { engine.add_lane(HostLane{.name = "copy", .threads = 0}); },
       "lane 'copy' has threads = 0; expected 1 or more");
  EXPECT_EQ(engine.stats().pushed, 0u);
}

TEST_P(LifecycleTest, WaitingForEverythingInsideAnOpIsMisuse) {
  const auto greedy = [&] {
    expect_error<MisuseError>([&] { engine.wait_all(); }, "wait_all inside op 'greedy' would wait for that op itself");
    expect_error<MisuseError>([&] { engine.shutdown(); }, "shutdown inside op 'greedy'");
  };
  engine.push(greedy, {}, {.name = "greedy"});
  engine.wait_all();
}

TEST_P(LifecycleTest, ARetireBesideAShutdownIsNeitherRefusedNorLost) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> freed{0};
    Engine ending(options());
    std::vector<Var> vars;
    for (int i = 0; i < 50; ++i) vars.push_back(ending.new_var());
    {
      std::jthread other([&] {
        for (const Var v : vars) ending.retire(v, [&] { ++freed; });
      });
      ending.push([] {}, {});
      ending.shutdown();
    }
    EXPECT_EQ(freed, 50);
  }
}

TEST_P(LifecycleTest, AnOpMayHoldTheLastOwnerOfItsEngine) {
  for (const bool async : {false, true}) {
    Gate ended;
    const auto pushed = std::make_shared<Gate>();
    auto owner = std::make_shared<Engine>(opens_at_its_end(options(), ended));
    Engine& alive = *owner;
    const Var v = alive.new_var();
    std::jthread completer;
    if (async) {
      alive.push_async(
          [owner = std::move(owner), &completer, pushed](OnComplete done) {
            completer = std::jthread([pushed, done = std::move(done)]() mutable {
              EXPECT_TRUE(pushed->pass());
              done();
            });
          },
          {mutate(v)});
    } else {
      // A serial engine runs the op, and loses its owner, inside this push.
      if (GetParam().policy == Policy::serial) pushed->open();
      alive.push([owner = std::move(owner), pushed] { EXPECT_TRUE(pushed->pass()); }, {mutate(v)});
    }
    pushed->open();
    ended.await();
  }
}

TEST_P(LifecycleTest, CapturesThatEndOnACompletingThreadMayPushWhileTheEngineDrains) {
  int freed = 0;
  {
    Engine drained(options());
    const Var v = drained.new_var();
    const auto push = [&] {
      const Var inner = drained.new_var();
      drained.push([&] { ++freed; }, {mutate(inner)});
      drained.retire(inner);
    };
    std::jthread completer;
    drained.push_async(
        [&completer, owner = std::make_unique<AtEnd>(push)](OnComplete done) {
          completer = std::jthread([done = std::move(done)]() mutable {
            std::this_thread::sleep_for(10ms);  // shutdown has begun
            done();
          });
        },
        {mutate(v)});
    drained.shutdown();
  }
  EXPECT_EQ(freed, 1);
}

TEST_P(LifecycleTest, CapturesOfARefusedPushEndOutsideTheEngine) {
  engine.retire(a);
  const auto wait = [&] { EXPECT_TRUE(engine.wait_all_for(patience)); };
  EXPECT_THROW(engine.push([owner = std::make_unique<AtEnd>(wait)] {}, {read(a)}), MisuseError);
  auto last = std::make_shared<Engine>(options());
  Engine& alive = *last;
  const Var w = alive.new_var();
  alive.retire(w);
  EXPECT_THROW(alive.push([last = std::move(last)] {}, {read(w)}), MisuseError);
}

TEST_P(LifecycleTest, AnEngineMayLiveAndEndInsideAnOpOfAnother) {
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
      {mutate(a)});
  ASSERT_TRUE(engine.wait_for({read(a)}, patience));
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

// Processes that exit while ops are pending which use static objects of a library.

constexpr int used_after_its_end = 3, op_left_out = 4;

/// A library that makes a static object on first use, on whichever thread that is.
std::atomic<bool> library_has_ended{false};
void use_library() {
  struct Object {
    ~Object() { library_has_ended = true; }
  };
  static const Object object;
  static_cast<void>(&object);
  static const bool noted = (rest_before_statics_end(), true);
  static_cast<void>(noted);
  for (int i = 0; i < 20; ++i) {
    if (library_has_ended) ::_exit(used_after_its_end);
    std::this_thread::sleep_for(20us);
  }
}

std::atomic<int> ran{0};

/// Ends after the engine, and ends the process if not all ops have run.
struct ExpectsToRun {
  int ops = 0;
  ~ExpectsToRun() {
    if (ran < ops) ::_exit(op_left_out);
  }
};

/// An engine in static storage, with pending ops that use the library. Some depend on others.
Engine& busy_engine(Policy policy, int expected) {
  static ExpectsToRun expects;
  static Engine engine({.policy = policy, .workers = 3});
  expects.ops = expected;
  static const Var var = engine.new_var();
  for (int i = 0; i < 100; ++i) {
    engine.push([] { use_library(), ++ran; }, i % 2 == 0 ? AccessList({mutate(var)}) : AccessList({}));
  }
  return engine;
}

class Exit : public EachPolicy {
 protected:
  Exit() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  /// The program ends the process with status 0.
  template <class F>
  static void expect_end(F&& program) {
    EXPECT_EXIT(program(), ::testing::ExitedWithCode(0), "");
  }
};
WINDROW_EACH_POLICY(Exit);

TEST_P(Exit, ByMainOrAnotherThreadRunsWhatIsPendingBeforeLibrariesEnd) {
  for (const bool by_main : {true, false}) {
    expect_end([=] {
      busy_engine(GetParam(), 100);
      if (by_main) std::exit(0);
      std::thread([] { use_library(), std::exit(0); }).join();
    });
  }
}

TEST_P(Exit, InsideAnOpEndsTheProcess) {
  expect_end([] {
    Engine& engine = busy_engine(GetParam(), 0);
    const Var var = engine.new_var();
    engine.push([] { use_library(), std::exit(0); }, {mutate(var)});
    engine.push([] { ::_exit(op_left_out); }, {mutate(var)});  // behind the op that never finishes
    engine.wait({mutate(var)});
  });
}

TEST_P(Exit, InsideAnOpOfAnEngineThatIsNotStaticEndsTheProcess) {
  expect_end([] {
    Engine engine({.policy = GetParam(), .workers = 3});
    for (int i = 0; i < 100; ++i) engine.push(use_library, {});
    engine.push([] { use_library(), std::exit(0); }, {});
    for (int i = 0; i < 100; ++i) engine.push(use_library, {});
    engine.wait_all();
  });
}

TEST_P(Exit, DoesNotDisturbThreadsThatPushMeanwhile) {
  expect_end([] {
    auto* const engine = new Engine({.policy = GetParam(), .workers = 3, .max_pending_ops = 64});
    std::thread([engine] {
      while (true) engine->push(use_library, {});
    }).detach();
    std::this_thread::sleep_for(5ms);
    std::exit(0);
  });
}

TEST_P(Exit, ThatDestroysNothingWaitsForNothing) {
  expect_end([] {
    busy_engine(GetParam(), 0);
    std::quick_exit(0);
  });
}

TEST_P(Exit, LeavesWhatCanNeverFinish) {
  expect_end([] {
    static Engine* const engine = new Engine({.policy = GetParam(), .workers = 2});  // static: no leak
    static std::optional<OnComplete> kept;
    Gate kept_now;
    const Var var = engine->new_var();
    engine->push_async([&](OnComplete done) { kept.emplace(std::move(done)), kept_now.open(); }, {mutate(var)});
    if (!kept_now.pass()) ::_exit(op_left_out);
    engine->push([] { ::_exit(op_left_out); }, {mutate(var)});
    engine->push([] { std::exit(0); }, {});
    std::this_thread::sleep_for(patience);
  });
}

}  // namespace
}  // namespace windrow::testing
