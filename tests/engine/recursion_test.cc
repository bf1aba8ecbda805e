// Recursion by ops that wait inside: it ends, and takes few threads.
#include <algorithm>
#include <atomic>
#include <functional>
#include <vector>

#include "support.h"
#include "tests/sanitized.h"

namespace windrow::testing {
namespace {

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
    EngineOptions none = options();
    none.max_spare_threads = 0;
    EXPECT_EQ(leaves(none, tree), leaves_of(tree));
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

TEST_P(Recursion, FindsARingThroughTheStackOfAWait) {
  std::atomic<int> rings{0};
  const auto wait = [&](Var var) { rings += closes_ring(engine, {read(var)}); };
  engine.push([&] { engine.push([&] { wait(a); }, {mutate(b)}), wait(b); }, {mutate(a)});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_GE(rings, 1);
}

/// The variables of a wait are awaited one after the other; what the op waits for is all of them.
TEST_P(Recursion, FindsARingThroughAnyVariableOfAWait) {
  std::atomic<int> rings{0};
  engine.push(
      [&] {
        engine.push([&] { rings += closes_ring(engine, {read(c)}); }, {mutate(b)});
        engine.push([] {}, {mutate(a)});
        rings += closes_ring(engine, {read(a), read(b)});
      },
      {mutate(c)});
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_GE(rings, 1);
}

}  // namespace
}  // namespace windrow::testing
