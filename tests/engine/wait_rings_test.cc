// Cycles of waits through everything that can block an op, searches that look at little, and waits of several engines
// that have no thread left.
#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "core/core.h"
#include "tests/engine/support.h"
#include "tests/seed.h"
#include "wait/wait_graph.h"

namespace windrow::testing {
namespace {

class WaitRings : public EngineOnEveryPolicy {
 protected:
  /// Runs it in an op with this access to a, and expects that its wait is a ring.
  template <class F>
  void expect_ring(Access access, F&& wait) {
    std::atomic<bool> found = false;
    engine.push(
        [&] {
          expect_error<WaitCycleError>(wait, "op 'waiting'");
          found = true;
        },
        {access}, {.name = "waiting"});
    ASSERT_TRUE(engine.wait_all_for(patience));
    EXPECT_TRUE(found);
  }
};
WINDROW_EVERY_POLICY(WaitRings);

TEST_P(WaitRings, ThroughAReadThatIsGrantedAreFound) {
  expect_ring(mutate(a), [&] {
    engine.push([] {}, {mutate(a), read(b)});
    engine.wait({mutate(b)});
  });
}

TEST_P(WaitRings, ThroughTurnsAreFound) {
  expect_ring(commute(a), [&] {
    engine.push([] {}, {commute(a), mutate(b)});
    engine.wait(b);
  });
}

TEST_P(WaitRings, ThroughTurnsOfOpsThatWaitForOthersFirstAreFound) {
  if (GetParam().policy == Policy::serial || GetParam().workers == 1) GTEST_SKIP() << "the other op must run beside";
  StuckOp stuck(engine, {mutate(c)});
  expect_ring(commute(a), [&] {
    engine.push([] {}, {commute(a), mutate(b), read(c)});
    engine.push([&] { stuck.let_go(); }, {});
    engine.wait(b);
  });
}

TEST_P(WaitRings, ThroughALaunchAreFound) {
  const Graph graph = engine.capture([&] {
    engine.push([] {}, {read(a), mutate(b)});
    engine.push([] {}, {mutate(b)});
  });
  expect_ring(mutate(a), [&] {
    graph.launch();
    engine.wait(b);
  });
}

TEST_P(WaitRings, OfAnOpInALaunchAreFound) {
  std::atomic<bool> found = false;
  const Graph graph = engine.capture([&] {
    engine.push([&] { found = closes_ring(engine, {read(b)}); }, {mutate(a)}, {.name = "waiting"});
    engine.push([] {}, {mutate(a), mutate(b)});
  });
  graph.launch();
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_TRUE(found);
}

TEST(WaitRing, IsSoughtAmongTheOpsThatWaitForTheSearchingOneOnly) {
  Engine engine({.policy = Policy::pool, .workers = 2, .max_pending_ops = 1u << 20});
  const Var other = engine.new_var(), mine = engine.new_var();
  StuckOp stuck(engine, {mutate(other)});
  for (int i = 0; i < 10'000; ++i) engine.push([] {}, {mutate(other)});
  const auto is_whole = [](std::size_t most) {
    const WaitGraph::Ring ring = WaitGraph::of_process().find_ring(Running::innermost(), most);
    EXPECT_EQ(ring.text, "");
    return ring.whole;
  };
  engine.push(
      [&] {
        EXPECT_TRUE(is_whole(16));
        for (int i = 0; i < 100; ++i) engine.push([] {}, {mutate(mine)});
        EXPECT_FALSE(is_whole(16));
        EXPECT_TRUE(is_whole(128));
      },
      {mutate(mine)});
  engine.wait(mine);
  stuck.let_go();
  engine.wait_all();
}

// ---- waits across engines ----

class WaitsAcrossEngines : public EachPolicy {};
INSTANTIATE_TEST_SUITE_P(ThreadedPolicies, WaitsAcrossEngines,
                         ::testing::Values(Policy::pool, Policy::per_device, Policy::chaos),
                         [](const auto& about) { return std::string(to_string(about.param)); });

/// Op i of a chain, on engine i modulo their number, waits for op i + 1. They start in a random order.
struct Chain {
  int engines, workers, length;
};

void run_chain(Policy policy, const Chain& chain, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::unique_ptr<Engine>> engines;
  for (int i = 0; i < chain.engines; ++i) {
    engines.push_back(std::make_unique<Engine>(
        EngineOptions{.policy = policy, .workers = chain.workers, .max_spare_threads = 0, .chaos_seed = random()}));
  }
  const auto engine_of = [&](int op) -> Engine& { return *engines[static_cast<std::size_t>(op % chain.engines)]; };
  std::vector<Var> vars;
  for (int i = 0; i < chain.length; ++i) vars.push_back(engine_of(i).new_var());
  std::vector<int> priorities(vars.size());
  std::iota(priorities.begin(), priorities.end(), 1);
  std::shuffle(priorities.begin(), priorities.end(), random);
  Gate gate;
  for (const auto& engine : engines) {
    for (int i = 0; i < chain.workers; ++i) engine->push([&] { gate.await(); }, {}, {.priority = 1000});
  }
  std::atomic<int> ended = 0;
  for (int i = 0; i < chain.length; ++i) {
    const auto at = static_cast<std::size_t>(i);
    engine_of(i).push(
        [&, i, at] {
          if (i + 1 < chain.length) engine_of(i + 1).wait(vars[at + 1]);
          ++ended;
        },
        {mutate(vars[at])}, {.priority = priorities[at]});
  }
  gate.open();
  for (const auto& engine : engines) ASSERT_TRUE(engine->wait_all_for(patience));
  EXPECT_EQ(ended, chain.length);
}

TEST_P(WaitsAcrossEngines, EndWhereNoThreadIsLeftInWhateverOrderOpsBegin) {
  const unsigned first = first_seed();
  for (unsigned seed = first; seed < first + 20; ++seed) {
    SCOPED_TRACE("WINDROW_TEST_SEED=" + std::to_string(seed));
    for (const Chain& chain : {Chain{2, 1, 3}, Chain{2, 1, 8}, Chain{2, 2, 12}, Chain{3, 1, 9}}) {
      run_chain(GetParam(), chain, seed);
    }
  }
}

TEST_P(WaitsAcrossEngines, ThatCloseARingAreFoundAlsoWhereNoThreadIsLeft) {
  for (const int spares : {0, 256}) {
    Engine one({.policy = GetParam(), .workers = 1, .max_spare_threads = spares});
    Engine two({.policy = GetParam(), .workers = 1, .max_spare_threads = spares});
    const Var a = one.new_var("a"), b = two.new_var("b");
    Gate first_runs, second_runs;
    std::atomic<int> rings = 0;
    one.push([&] { first_runs.open(), second_runs.pass(), rings += closes_ring(two, {read(b)}); }, {mutate(a)});
    two.push([&] { second_runs.open(), first_runs.pass(), rings += closes_ring(one, {read(a)}); }, {mutate(b)});
    ASSERT_TRUE(one.wait_all_for(patience));
    ASSERT_TRUE(two.wait_all_for(patience));
    EXPECT_GE(rings, 1);
  }
}

TEST_P(WaitsAcrossEngines, RunNoMoreOpsThanThereAreWorkers) {
  // Each op of the other engine counts itself; it has one worker, whose op waits.
  Engine one({.policy = GetParam(), .workers = 2, .max_spare_threads = 0});
  Engine two({.policy = GetParam(), .workers = 1, .max_spare_threads = 0});
  Crowd crowd;
  std::vector<Var> vars;
  for (int i = 0; i < 40; ++i) vars.push_back(two.new_var());
  for (const Var var : vars) {
    two.push([&] { crowd.pass([] { std::this_thread::sleep_for(200us); }); }, {mutate(var)});
  }
  for (const Var var : vars) one.push([&, var] { two.wait(var); }, {});
  ASSERT_TRUE(one.wait_all_for(patience));
  ASSERT_TRUE(two.wait_all_for(patience));
  EXPECT_EQ(crowd.most(), 1);
}

}  // namespace
}  // namespace windrow::testing
