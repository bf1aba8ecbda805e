// The contract of order, with every policy, beside what the oracle (random_program.h) compares.
#include <limits>
#include <stdexcept>

#include "support.h"
#include "windrow/engine/internal/denormals.h"
#include "windrow/engine/internal/push_refusal.h"
#include "windrow/engine/parallel.h"

namespace windrow::testing {
namespace {

class EngineTest : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(EngineTest);

TEST_P(EngineTest, AVariableNamedTwiceIsOneAccessOfTheStrongerKind) {
  int value = 0;
  for (int i = 0; i < 100; ++i) engine.push([&] { ++value; }, {read(a), mutate(a), read(a)});
  engine.wait({read(a), read(a)});
  EXPECT_EQ(value, 100);
  EXPECT_EQ(engine.version(a), 100u);
  engine.push([] { throw std::runtime_error("boom"); }, {mutate(a)});
  engine.push([&] { ++value; }, {overwrite(a), read(a)});  // reads the old value and writes
  EXPECT_THROW(engine.wait(a), OpError);
  engine.push([&] { ++value; }, {overwrite(a), overwrite(a)});
  engine.wait(a);
  EXPECT_EQ(value, 101);
}

TEST_P(EngineTest, ThreadsMayPushOverlappingVariablesInOppositeOrders) {
  const Var d = engine.new_var("d");
  int counter = 0;
  constexpr int threads = 8, pushes = 300;
  on_threads(threads, [&](int t) {
    for (int i = 0; i < pushes; ++i) {
      const bool forth = (t + i) % 2 == 0;
      engine.push([&] { ++counter; },
                  {mutate(forth ? a : d), mutate(forth ? d : a), mutate(forth ? b : c), mutate(forth ? c : b)});
    }
  });
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(counter, threads * pushes);
}

TEST_P(EngineTest, WaitAllTellsAlsoWhileOthersPush) {
  std::jthread other([&](std::stop_token stop) {
    while (!stop.stop_requested()) {
      engine.push([] {}, {mutate(b)});
      engine.wait(b);
    }
  });
  for (int i = 0; i < 300; ++i) {
    engine.push([] { throw std::runtime_error("no"); }, {mutate(a)});
    EXPECT_THROW(engine.wait_all(), OpError);
    engine.heal(a);
  }
}

TEST_P(EngineTest, StatsCountWhatHappened) {
  for (int i = 0; i < 3; ++i) engine.push([] {}, {mutate(a)});
  engine.push([] { throw std::runtime_error("no"); }, {mutate(a)});
  engine.push([] {}, {read(a)});
  EXPECT_THROW(engine.wait_all(), OpError);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.pushed, 5u);
  EXPECT_EQ(stats.pending, 0u);
  EXPECT_EQ(stats.failed, 1u);
  EXPECT_EQ(stats.skipped, 1u);
  EXPECT_EQ(stats.waits, 1u);
}

// Engine::pushed_version: whether something was pushed that writes a variable.

class PushedVersion : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(PushedVersion);

TEST_P(PushedVersion, ChangesWithEachPushThatWritesAndWithNoOther) {
  Gate gate;
  if (GetParam().policy != Policy::serial) engine.push([&] { gate.pass(); }, {mutate(b)});
  engine.push([] {}, {read(b), overwrite(a)});  // what follows is counted before this has run
  const Graph writes = engine.capture([&] { engine.push([] {}, {mutate(a)}); });
  const Graph reads = engine.capture([&] { engine.push([] {}, {read(a)}); });
  const auto push = [&](Access access) { return [this, access] { engine.push([] {}, {access}); }; };
  const std::vector<std::function<void()>> that_write = {push(mutate(a)),         push(overwrite(a)),
                                                         push(commute(a)),        push(commute(a)),
                                                         [&] { engine.heal(a); }, [&] { writes.launch(); }};
  const std::vector<std::function<void()>> that_do_not = {push(read(a)), push(mutate(b)), push(read(a)),
                                                          [&] { reads.launch(); }};
  for (const auto& write : that_write) {
    const std::uint64_t before = engine.pushed_version(a);
    write();
    const std::uint64_t after = engine.pushed_version(a);
    EXPECT_NE(after, before);
    for (int times = 0; times < 2; ++times) {
      for (const auto& step : that_do_not) {
        step();
        EXPECT_EQ(engine.pushed_version(a), after);
      }
    }
  }
  gate.open();
  engine.wait_all();
  EXPECT_THROW(engine.pushed_version(Var()), MisuseError);
  engine.retire(a);
  EXPECT_THROW(engine.pushed_version(a), MisuseError);
}

// Scopes in which a thread pushes nothing.

class Refusal : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(Refusal);

TEST_P(Refusal, RefusesWhatTheThreadPushes) {
  const Graph graph = engine.capture([&] { engine.push([] {}, {mutate(a)}); }, "graph");
  const DeclaredOp declared = engine.declare([] {}, {mutate(a)}, {.name = "declared"});
  const std::uint64_t before = engine.stats().pushed;
  {
    const PushRefusal refusal(engine, "expected silence");
    const auto expect_refused = [&](const char* name, const std::function<void()>& call) {
      expect_error<MisuseError>(call, {name, "expected silence"});
    };
    expect_refused("add", [&] { engine.push([] {}, {mutate(a)}, {.name = "add"}); });
    expect_refused("send", [&] { engine.push_async([](OnComplete) {}, {mutate(a)}, {.name = "send"}); });
    expect_refused("heal", [&] { engine.heal(a); });
    expect_refused("graph", [&] { graph.launch(); });
    expect_refused("declared", [&] { engine.push(declared); });
    expect_refused("wait", [&] { engine.wait(a); });
    expect_refused("wait", [&] { engine.wait_all(); });
    expect_refused("capture", [&] { engine.capture([] {}); });
    EXPECT_NE(error_of<MisuseError>([&] { PushRefusal(engine, "twice"); }), "");
  }
  EXPECT_EQ(engine.stats().pushed, before);
  bool ran = false;
  engine.push([&] { ran = true; }, {mutate(a)});
  graph.launch();
  engine.push(declared);
  engine.wait_all();
  EXPECT_TRUE(ran);
}

TEST_P(Refusal, LetsOwnersEnd) {
  std::atomic<int> ended = 0;
  {
    const PushRefusal refusal(engine, "expected silence");
    engine.retire(b, [&] { ++ended; });
  }
  engine.wait_all();
  EXPECT_EQ(ended, 1);
}

TEST_P(Refusal, IsOfOneThreadAndOneEngine) {
  Engine other;
  const Var of_other = other.new_var("of other");
  std::atomic<int> ran = 0;
  const PushRefusal refusal(engine, "expected silence");
  other.push([&] { ++ran; }, {mutate(of_other)});
  other.wait(of_other);
  std::thread([&] {
    engine.push([&] { ++ran; }, {mutate(a)});
    engine.wait(a);
  }).join();
  EXPECT_EQ(ran, 2);
}

TEST_P(Refusal, IsNotPossibleInsideACapture) {
  const Graph graph = engine.capture([&] {
    expect_error<MisuseError>([&] { PushRefusal(engine, "expected silence"); }, "capture");
    engine.push([] {}, {mutate(a)});
  });
  EXPECT_EQ(graph.size(), 1U);
}

// What ops do with denormal numbers.

/// Whether the calling thread takes denormal numbers as zeros, as operands and as results.
bool flushes() {
  volatile float smallest = std::numeric_limits<float>::min(), half = 0.5f, denormal = 1e-40f, large = 1e20f;
  const bool results = smallest * half == 0, operands = denormal * large == 0;
  EXPECT_EQ(results, operands);
  return results;
}
class DenormalOps : public EveryPolicy {
 protected:
  void SetUp() override {
    if (!DenormalsScope::can_flush()) GTEST_SKIP() << "this processor has no such mode";
  }
};
WINDROW_EVERY_POLICY(DenormalOps);

TEST_P(DenormalOps, AreFlushedOnEveryThreadUnlessTheOptionSaysOtherwise) {
  for (const Denormals mode : {Denormals::flush, Denormals::keep}) {
    for (const Denormals of_caller : {Denormals::keep, Denormals::flush}) {
      const DenormalsScope caller(of_caller);
      EngineOptions how = options();
      if (mode == Denormals::keep) how.denormals = mode;
      Engine engine(how);
      const Var var = engine.new_var("var"), chain = engine.new_var("chain");
      std::atomic<int> as_told = 0, otherwise = 0;
      const auto look = [&] { ++(flushes() == (mode == Denormals::flush) ? as_told : otherwise); };
      for (int i = 0; i < 20; ++i) {
        engine.push(look, {read(var)});
        engine.push(look, {mutate(chain)});
      }
      engine.push([&] { parallel_for(40, 1, [&](std::size_t, std::size_t) { look(); }); }, {mutate(var)});
      engine.push(
          [&] {
            engine.push(look, {mutate(chain)});
            engine.wait(chain);  // the thread may run the op meanwhile
            look();
          },
          {read(var)});
      const Graph graph = engine.capture([&] { engine.push(look, {mutate(chain)}); });
      graph.launch();
      engine.push_async(
          [&](OnComplete done) {
            look();
            done();
          },
          {mutate(var)});
      engine.wait_all();
      EXPECT_EQ(otherwise, 0);
      EXPECT_EQ(as_told, 84);
      EXPECT_EQ(flushes(), of_caller == Denormals::flush) << "after ops of an engine";
    }
  }
}

TEST_P(DenormalOps, OfAnEngineInsideAnotherOneHaveTheirOwnMode) {
  Engine outer(options());
  bool inside = true, before = false, after = false;
  const Var var = outer.new_var("var");
  outer.push(
      [&] {
        Engine inner({.policy = Policy::serial, .denormals = Denormals::keep});
        before = flushes();
        inner.push([&] { inside = flushes(); }, {mutate(inner.new_var("inner"))});
        inner.wait_all();
        after = flushes();
      },
      {mutate(var)});
  outer.wait_all();
  EXPECT_TRUE(before && after);
  EXPECT_FALSE(inside);
}

TEST(DenormalsScopes, NestAndGiveBackTheModeOfTheirThread) {
  if (!DenormalsScope::can_flush()) GTEST_SKIP() << "this processor has no such mode";
  std::thread([] {
    EXPECT_FALSE(flushes());
    {
      const DenormalsScope flush(Denormals::flush);
      EXPECT_TRUE(flushes());
      {
        const DenormalsScope keep(Denormals::keep);
        EXPECT_FALSE(flushes());
      }
      EXPECT_EQ(DenormalsScope::mode(), Denormals::flush);
    }
    EXPECT_FALSE(flushes());
    DenormalsScope::set(Denormals::flush);
    EXPECT_TRUE(flushes());
  }).join();
  EXPECT_FALSE(flushes());
}

}  // namespace
}  // namespace windrow::testing
