// Histories of lazy graphs: with one, another graph goes on as if nothing had been interrupted.
#include <gtest/gtest.h>

#include <random>

#include "tests/batching/trainer.h"
#include "tests/engine/support.h"
#include "tests/seed.h"
#include "windrow/batching/lazy_cell.h"
#include "windrow/batching/lazy_lists.h"

namespace windrow {
namespace {

using testing::error_of;

constexpr Index cell_size = 6;

/// A program that trains on other structures in each step: operations, functions of parameters, and cells, some of them
/// computed in several flushes.
struct Program {
  explicit Program(int workers = 2, LazyOptions options = {.runner = {.schedule = SchedulePolicy::learned}})
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
    std::vector<std::int64_t> history;
  };
  State state() const {
    State now{.values = {}, .minibatches = parameters.minibatches(), .history = graph.history()};
    for (std::size_t i = 0; i < parameters.size(); ++i) now.values.push_back(parameters.value(parameters[i]).get());
    return now;
  }
  enum class Learned { all, nothing };
  void go_on_from(const State& state, Learned learned) {
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters.value(parameters[i]).set(state.values[i]);
    parameters.set_minibatches(state.minibatches);
    if (learned == Learned::all) graph.set_history(state.history);
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
  std::vector<unsigned> stopped;  // after so many steps
};

TEST(LazyHistory, LetsAnotherGraphGoOnBitByBit) {
  constexpr unsigned steps = 5;
  int differ = 0;  // of those that learn anew
  for (const auto& [recompute_below, stopped] : {Case{0, {1, 2, 3, 4}}, Case{20'000'000, {2}}}) {
    const LazyOptions options{.runner = {.schedule = SchedulePolicy::learned, .own_types = 2},
                              .recompute_below = recompute_below};
    Program straight(2, options);
    std::vector<Program::State> states = {straight.state()};
    for (unsigned step = 0; step < steps; ++step) {
      straight.step(step);
      states.push_back(straight.state());
    }
    for (const unsigned after : stopped) {
      SCOPED_TRACE(after);
      Program later(1, options), anew(2, options);
      later.go_on_from(states[after], Program::Learned::all);
      EXPECT_TRUE(later.graph.history() == states[after].history);
      for (unsigned step = after; step < steps; ++step) {
        later.step(step);
        EXPECT_TRUE(later.state().values == states[step + 1].values) << "step " << step;
        EXPECT_TRUE(later.graph.history() == states[step + 1].history) << "step " << step;
      }
      if (after < 3) continue;
      anew.go_on_from(states[after], Program::Learned::nothing);
      for (unsigned step = after; step < steps; ++step) anew.step(step);
      differ += anew.state().values != states[steps].values;
    }
  }
  EXPECT_GT(differ, 0) << "so the history is needed";
}

TEST(LazyHistory, IsGivenAfterClearAndTakenByANewGraphOfTheSameProgram) {
  Program program;
  const std::vector<std::int64_t> before = program.graph.history();
  program.step(2);
  const std::vector<std::int64_t> history = program.graph.history();
  {
    const LazyExpr recorded = program.graph.zeros(2);
    EXPECT_THROW(program.graph.history(), MisuseError);
    EXPECT_THROW(program.graph.set_history(history), MisuseError);
    program.graph.clear();
  }
  EXPECT_THROW(program.graph.set_history(history), MisuseError);

  Program fresh;
  LazyGraph other(fresh.host, fresh.parameters, {.runner = {.schedule = SchedulePolicy::learned}});
  EXPECT_EQ(error_of<MisuseError>([&] { other.set_history(history); }),
            "a history with cell 'vertex'; expected a graph that has made the same cells");
  std::vector<std::int64_t> newer = history;
  newer[0] = 5;
  EXPECT_EQ(error_of<MisuseError>([&] { fresh.graph.set_history(newer); }), "a history of version 5; expected 4");
  for (std::size_t length = 0; length < history.size(); length += 1 + history.size() / 50) {
    EXPECT_THROW(fresh.graph.set_history(std::span(history).first(length)), MisuseError) << length;
  }
  newer = history;
  newer.push_back(0);
  EXPECT_THROW(fresh.graph.set_history(newer), MisuseError);
  EXPECT_EQ(fresh.graph.history(), before);
  fresh.graph.set_history(history);
  EXPECT_EQ(fresh.graph.history(), history);
}

/// Whatever is changed, a graph refuses it in a line, or trains with it.
TEST(LazyHistory, IsCheckedNumberByNumber) {
  const LazyOptions options;  // without lessons of schedules, of which most numbers would be
  Program program(1, options);
  program.step(1);
  const std::vector<std::int64_t> history = program.graph.history();
  const unsigned seed = testing::first_seed();
  std::mt19937 random(seed);
  SCOPED_TRACE("WINDROW_TEST_SEED=" + std::to_string(seed));
  int refused = 0, taken = 0;
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<std::int64_t> damaged = history;
    std::int64_t& number = damaged[random() % damaged.size()];
    number = random() % 4 == 0 ? -number - 1 : static_cast<std::int64_t>(random() % 40) - 4;
    Program fresh(1, options);
    try {
      fresh.graph.set_history(damaged);
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      ++refused;
      continue;
    }
    ++taken;
    try {
      fresh.step(1);
    } catch (const Error&) {
      fresh.engine.wait_all();
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(taken, 0);
}

/// It names operators, and so needs their names to be those of the device.
TEST(LazyHistory, IsRefusedForOperatorsThatTheDeviceDoesNotName) {
  static constexpr Operator twin{
      .name = "watched", .infer = testing::same, .gradients = testing::passed, .locality = Locality::rowwise};
  Engine engine;
  Device host = host_device(engine);
  host.kernels.add(twin, testing::watched_copy);
  Parameters parameters(host, 1);
  LazyGraph graph(host, parameters);
  apply(testing::watched, {graph.input({1})}).value();
  graph.clear();
  EXPECT_NE(error_of<MisuseError>([&] { graph.history(); }).find("operator 'watched' is not the one of its name"),
            std::string::npos);
}

}  // namespace
}  // namespace windrow
