// Cycles of waits through everything that can block an op, searches that look at little, and waits of several engines
// that have no thread left.
#include <numeric>
#include <random>

#include "core/core.h"
#include "support.h"
#include "tests/sanitized.h"
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
          expect_error<WaitCycleError>(wait, {"a wait that cannot end: ", "op 'waiting'"});
          found = true;
        },
        {access}, {.name = "waiting"});
    ASSERT_TRUE(engine.wait_all_for(patience));
    EXPECT_TRUE(found);
  }
};
WINDROW_EVERY_POLICY(WaitRings);

TEST_P(WaitRings, ThroughReadsTurnsLaunchesAndManyOpsAreFound) {
  expect_ring(mutate(a), [&] { engine.wait(a); });
  expect_ring(mutate(a), [&] {  // a read that is granted
    engine.push([] {}, {mutate(a), read(b)});
    engine.wait({mutate(b)});
  });
  expect_ring(mutate(a), [&] {
    engine.push([] {}, {read(a), mutate(b)}, {.name = "second"});
    engine.push([] {}, {read(b), mutate(c)}, {.name = "third"});
    expect_error<WaitCycleError>([&] { engine.wait(c); }, {"'waiting'", "'second'", "'third'", "which waits for"});
    engine.wait(c);
  });
  expect_ring(commute(a), [&] {
    engine.push([] {}, {commute(a), mutate(b)});
    engine.wait(b);
  });
  const Graph graph = engine.capture([&] {
    engine.push([] {}, {read(a), mutate(b)});
    engine.push([] {}, {mutate(b)});
  });
  expect_ring(mutate(a), [&] {
    graph.launch();
    engine.wait(b);
  });
  expect_ring(mutate(a), [&] {
    for (int i = 0; i < (thread_sanitized ? 2000 : 20000); ++i) engine.push([] {}, {mutate(a), mutate(b)});
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

// Recursion by ops that wait inside: it ends, and takes few threads.

/// How an op comes by the results of those it has pushed.
enum class Join {
  at_once,      ///< one wait for all
  one_by_one,   ///< a wait for each, in the order of the pushes
  by_an_op,     ///< a wait for an op that reads all of them
  by_a_launch,  ///< the same with a captured op
};

struct CallTree {
  int levels, children;
  Join join;
};

/// Counts the leaves of a tree, by an op for each vertex.
long count_leaves(Engine& engine, const CallTree& tree, int levels) {
  if (levels == 0) return 1;
  const auto children = static_cast<std::size_t>(tree.children);
  std::vector<long> counts(children);
  std::vector<Var> vars(children);
  for (std::size_t i = 0; i < children; ++i) {
    vars[i] = engine.new_var();
    engine.push([&, i] { counts[i] = count_leaves(engine, tree, levels - 1); }, {mutate(vars[i])});
  }
  long sum = 0;
  const auto add_up = [&] {
    for (const long count : counts) sum += count;
  };
  std::vector<Access> accesses;
  for (const Var var : vars) accesses.push_back(read(var));
  switch (tree.join) {
    case Join::at_once:
      engine.wait(accesses);
      add_up();
      break;
    case Join::one_by_one:
      for (const Var var : vars) engine.wait(var);
      add_up();
      break;
    case Join::by_an_op:
    case Join::by_a_launch: {
      const Var total = engine.new_var();
      accesses.push_back(mutate(total));
      const auto push = [&] { engine.push(add_up, accesses); };
      if (tree.join == Join::by_an_op) {
        push();
      } else {
        engine.capture(push).launch();
      }
      engine.wait(total);
      engine.retire(total);
      break;
    }
  }
  for (const Var var : vars) engine.retire(var);
  return sum;
}

class Recursion : public EngineOnEveryPolicy {
 protected:
  /// The leaves that an engine with these options counts.
  static long leaves(const EngineOptions& options, const CallTree& tree, std::uint64_t* spares = nullptr) {
    Engine counts(options);
    const Var v = counts.new_var();
    long count = 0;
    counts.push([&] { count = count_leaves(counts, tree, tree.levels); }, {mutate(v)});
    if (!counts.wait_for({read(v)}, patience)) return 0;
    counts.wait(v);
    EXPECT_GE(counts.stats().waits_in_ops, 1u);
    if (spares != nullptr) *spares = counts.stats().spare_threads;
    return count;
  }
  static constexpr int deep = sanitized ? 6 : 12, wide = sanitized ? 2 : 4, joined = sanitized ? 5 : 8;
  static constexpr CallTree trees[] = {{deep, 2, Join::at_once},    {deep, 2, Join::one_by_one},
                                       {wide, 8, Join::at_once},    {wide, 8, Join::one_by_one},
                                       {joined, 2, Join::by_an_op}, {joined, 2, Join::by_a_launch}};
};
INSTANTIATE_TEST_SUITE_P(All, Recursion,
                         ::testing::Values(Setup{Policy::serial, 1}, Setup{Policy::pool, 1}, Setup{Policy::pool, 2},
                                           Setup{Policy::pool, 8}, Setup{Policy::per_device, 1},
                                           Setup{Policy::per_device, 2}, Setup{Policy::per_device, 8},
                                           Setup{Policy::chaos, 1}, Setup{Policy::chaos, 2}, Setup{Policy::chaos, 8}),
                         setup_name);

long leaves_of(const CallTree& tree) {
  long leaves = 1;
  for (int level = 0; level < tree.levels; ++level) leaves *= tree.children;
  return leaves;
}

TEST_P(Recursion, NeedsFewThreads) {
  for (const CallTree& tree : trees) {
    std::uint64_t spares = 0;
    EXPECT_EQ(leaves(options(), tree, &spares), leaves_of(tree));
    EXPECT_LE(spares, static_cast<std::uint64_t>(tree.levels * GetParam().workers + 8));
  }
}

TEST_P(Recursion, EndsWithoutASpareThread) {
  for (CallTree tree : trees) {
    if (tree.children == 2) tree.levels = std::min(tree.levels, 7);
    EXPECT_EQ(leaves(options({.max_spare_threads = 0}), tree), leaves_of(tree));
  }
}

TEST_P(Recursion, DeeperThanAStackTakesSeveralThreads) {
  constexpr int depth_wanted = sanitized ? 200 : 1000;
  int depth = 0;
  std::function<void(int)> descend = [&](int left) {
    ++depth;
    if (left == 0) return;
    const Var inner = engine.new_var();
    engine.push([&, left] { descend(left - 1); }, {mutate(inner)});
    engine.wait(inner);
    engine.retire(inner);
  };
  engine.push([&] { descend(depth_wanted); }, {mutate(a)});
  ASSERT_TRUE(engine.wait_for({read(a)}, patience));
  EXPECT_EQ(depth, depth_wanted + 1);
}

TEST_P(Recursion, RunsAboveAWaitOnlyWhatThatDependsOn) {
  const Var x = engine.new_var("x");
  int done = 0;
  engine.push(
      [&] {
        // On the stack of this op these two would keep it from going on, and wait for its end.
        engine.push([&] { engine.wait(x), ++done; }, {mutate(b)});
        engine.push([] {}, {mutate(a)});
        engine.push([&] { engine.wait(x), ++done; }, {read(a), mutate(b), mutate(c)});
        engine.wait(a);
      },
      {mutate(x)});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(done, 2);
}

/// The variables of a wait are awaited one after the other; what the op waits for is all of them.
TEST_P(Recursion, FindsARingThroughTheStackAndAnyVariableOfAWait) {
  for (const std::vector<Access>& awaited : {std::vector{read(b)}, {read(a), read(b)}}) {
    std::atomic<int> rings{0};
    engine.push(
        [&] {
          engine.push([&] { rings += closes_ring(engine, {read(c)}); }, {mutate(b)});
          engine.push([] {}, {mutate(a)});
          rings += closes_ring(engine, awaited);
        },
        {mutate(c)});
    ASSERT_TRUE(engine.wait_all_for(patience)) << awaited.size();
    EXPECT_GE(rings, 1) << awaited.size();
  }
}

}  // namespace
}  // namespace windrow::testing
