// What is learned about batching is forgotten where a checkpoint is saved, so a new graph or runner goes on as the old
// one does.
#include <gtest/gtest.h>

#include <random>

#include "tests/batching/trainer.h"
#include "tests/engine/support.h"
#include "windrow/batching/lazy_cell.h"
#include "windrow/batching/lazy_lists.h"

namespace windrow {
namespace {

using testing::error_of;

constexpr Index cell_size = 6;

/// A program that trains on other structures in each step: operations, functions of parameters, and cells, some of them
/// computed in several flushes.
struct Program {
  explicit Program(int workers = 2, LazyOptions options = {})
      : engine({.workers = workers}), graph(host, parameters, options) {}

  LazyExpr leaf(std::mt19937& random) { return embedding(words, graph.index(static_cast<std::int32_t>(random() % 9))); }
  LazyExpr tree(std::mt19937& random, int depth) {
    if (depth == 0 || random() % 3 == 0) return tanh(leaf(random));
    const LazyExpr left = tree(random, depth - 1), right = tree(random, depth - 1);
    const LazyExpr both = concat({left, right});
    return tanh(matmul(both, below) + b) * sigmoid(matmul(both, gate)) + 0.5 * left;
  }
  LazyExpr chain(std::mt19937& random, std::uint32_t length) {
    LazyExpr state = leaf(random);
    for (std::uint32_t i = 0; i < length; ++i) {
      state =
          dropout(tanh(matmul(concat({state, leaf(random)}), below)), {.rate = 0.2}) + state * exp(LazyWeight(scale));
    }
    return state;
  }
  LazyExpr tree_of_cells(std::mt19937& random, int depth, std::vector<LazyExpr>& all) {
    LazyExpr left, right;
    if (depth > 0 && random() % 3 != 0) left = tree_of_cells(random, depth - 1, all);
    if (depth > 0 && random() % 4 != 0) right = tree_of_cells(random, depth - 1, all);
    all.push_back(vertex({left, right}, {graph.index(static_cast<std::int32_t>(random() % 10) - 1)}));
    return all.back();
  }

  /// Trains on the minibatch of that number.
  void step(unsigned number) {
    std::mt19937 random(number);
    std::vector<LazyExpr> losses;
    const auto add = [&](const LazyExpr& x) {
      losses.push_back(softmax_cross_entropy(matmul(x, out), graph.index(static_cast<std::int32_t>(random() % 3))));
    };
    for (int sample = 0; sample < 4; ++sample) {
      add(tree(random, 2 + static_cast<int>(number % 3)));
      if (number >= 2) add(chain(random, 1 + random() % 7));
      std::vector<LazyExpr> all;
      const LazyExpr root = tree_of_cells(random, 3, all);
      if (sample % 3 == 2 && number % 2 == 1) root.value();
      if (number >= 1) add(read({root}, {}, all));
      if (number >= 3) add(dot_attention(root, all, all));
      if (number >= 4) add(square(leaf(random)) + root);
    }
    graph.backward(losses);
    parameters.sgd(0.02);
    graph.clear();
  }

  /// All that a checkpoint has.
  struct State {
    std::vector<std::vector<float>> values;
    std::uint64_t minibatches;
  };
  State state() const {
    State now{.values = {}, .minibatches = parameters.minibatches()};
    for (std::size_t i = 0; i < parameters.size(); ++i) now.values.push_back(parameters.value(parameters[i]).get());
    return now;
  }
  void go_on_from(const State& state) {
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters.value(parameters[i]).set(state.values[i]);
    parameters.set_minibatches(state.minibatches);
  }

  Engine engine;
  const Device host = testing::Trainer::host_of(engine);
  Parameters parameters{host, 3};
  const Parameter words = parameters.add("words", 9, cell_size, Initial::uniform(-1, 1)),
                  below = parameters.add("below", 2 * cell_size, cell_size, Initial::uniform(-1, 1)),
                  gate = parameters.add("gate", 2 * cell_size, cell_size, Initial::uniform(-1, 1)),
                  b = parameters.add("b", 1, cell_size, Initial::uniform(-1, 1)),
                  scale = parameters.add("scale", 1, cell_size, Initial::uniform(-1, 0)),
                  query = parameters.add("query", cell_size, cell_size, Initial::uniform(-1, 1)),
                  out = parameters.add("out", cell_size, 3, Initial::uniform(-1, 1));
  LazyGraph graph;
  const LazyCell vertex = graph.cell("vertex", [this](CellBody& cell) {
    const Expr left = cell.operand(cell_size), right = cell.operand(cell_size);
    const Expr word = embedding(words, cell.index(Presence::sometimes));
    cell.result(tanh(word + matmul(concat(left, right), below)));
  });
  const LazyCell read = graph.cell("read", [this](CellBody& cell) {
    const Expr root = cell.operand(cell_size), state = cell.each(cell_size);
    const Expr weight = exp(row_dot(state, to_children(matmul(root, query))));
    cell.result(root + sum_children(weight * state) / sum_children(weight));
  });
};

struct Case {
  std::int64_t recompute_below;
  std::vector<unsigned> saved;  // after so many steps
};

TEST(LazyForgetting, LetsAnotherGraphGoOnBitByBit) {
  constexpr unsigned steps = 5;
  int differ = 0;  // if nothing is forgotten
  for (const auto& [recompute_below, saved] : {Case{0, {1, 2, 3, 4}}, Case{20'000'000, {2, 4}}}) {
    const LazyOptions options{.runner = {.own_types = 2}, .recompute_below = recompute_below};
    Program straight(2, options);
    for (unsigned step = 0; step < steps; ++step) straight.step(step);
    for (const unsigned after : saved) {
      SCOPED_TRACE(after);
      Program first(2, options), later(1, options);
      for (unsigned step = 0; step < after; ++step) first.step(step);
      first.graph.forget();
      later.go_on_from(first.state());
      for (unsigned step = after; step < steps; ++step) {
        first.step(step);
        later.step(step);
        EXPECT_TRUE(later.state().values == first.state().values) << "step " << step;
      }
      differ += straight.state().values != first.state().values;
    }
  }
  EXPECT_GT(differ, 0) << "so forgetting is needed";
}

TEST(LazyForgetting, IsRefusedWhileExpressionsAreRecorded) {
  Program program;
  program.step(0);
  const LazyExpr recorded = program.graph.zeros(2);
  EXPECT_EQ(error_of<MisuseError>([&] { program.graph.forget(); }),
            "forget() while expressions are recorded; expected it after clear()");
  EXPECT_EQ(recorded.value(), std::vector<float>(2, 0));
}

/// Types that were seen have gradients later, too: zeros, with which optimisers take a step.
TEST(RunnerForgetting, ForgetsTheTypesThatHaveGradients) {
  testing::Trainer s;
  std::mt19937 random(1);
  const testing::Graphs trees(s.function, testing::many_trees(1, 20)),
      leaf(s.function, {testing::random_graph(1, 2, testing::Form::trees, random)});
  const Parameter inner = s.parameters.find("inner");
  const auto has_gradient = [&](const testing::Graphs& graphs) {
    s.runner.differentiate(graphs.pointers);
    return s.parameters.has_dense_gradient(inner);
  };
  EXPECT_FALSE(has_gradient(leaf));
  EXPECT_TRUE(has_gradient(trees));
  EXPECT_TRUE(has_gradient(leaf));
  s.runner.forget();
  EXPECT_FALSE(has_gradient(leaf));
}

}  // namespace
}  // namespace windrow
