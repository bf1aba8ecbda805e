// Frozen parameters: no gradient is computed for them, and all others train as if it had been.
#include <gtest/gtest.h>

#include <random>

#include "tests/batching/cells.h"
#include "tests/ops/cases.h"
#include "windrow/batching/lazy.h"

namespace windrow {
namespace {

using testing::Form;
using testing::GatesCell;
using testing::Graphs;
using testing::OddCell;
using testing::random_graph;
using testing::TreeLstm;

using AllValues = std::vector<std::vector<float>>;

AllValues all_values_of(const Parameters& parameters) {
  AllValues values;
  for (std::size_t i = 0; i < parameters.size(); ++i) values.push_back(parameters.value(parameters[i]).get());
  return values;
}

/// A cell as a vertex function, with its graphs.
template <class Cell>
struct OfVertices {
  Minibatch differentiate() { return runner.differentiate(graphs.pointers); }
  std::int64_t flops() const { return runner.stats().multiply_flops; }
  std::int64_t kernels() const { return runner.stats().kernels; }

  static std::vector<GraphData> data() {
    std::mt19937 random(5);
    std::vector<GraphData> all;
    for (int i = 0; i < 4; ++i) all.push_back(random_graph(9, Cell::arity, Form::trees, random));
    return all;
  }
  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, 3};
  Cell cell{parameters};
  VertexFunction function{"cell", {.arity = Cell::arity}, [this](Vertex& v) { cell(v); }};
  Runner runner{host, function, parameters};
  Graphs graphs{function, data()};
};

/// Trees as lazy expressions.
struct OfLazyExpressions {
  LazyExpr tree(std::mt19937& random, int depth) {
    if (depth == 0) return embedding(words, graph.index(static_cast<std::int32_t>(random() % 5)));
    const LazyExpr left = tree(random, depth - 1), right = tree(random, depth - 1);
    return tanh(matmul(left, of_left) + matmul(right, of_right) + b);
  }
  void differentiate() {
    std::mt19937 random(7);
    std::vector<LazyExpr> losses;
    for (int i = 0; i < 6; ++i) {
      losses.push_back(softmax_cross_entropy(matmul(tree(random, 1 + i % 3), out), graph.index(i % 2)));
    }
    graph.backward(losses);
    graph.clear();
  }
  std::int64_t flops() const { return graph.stats().runner.multiply_flops; }
  std::int64_t kernels() const { return graph.stats().runner.kernels; }

  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, 3};
  Parameter words = parameters.add("words", 5, 4, Initial::uniform(-1, 1)),
            of_left = parameters.add("left", 4, 4, Initial::uniform(-1, 1)),
            of_right = parameters.add("right", 4, 4, Initial::uniform(-1, 1)),
            b = parameters.add("b", 1, 4, Initial::uniform(-1, 1)),
            out = parameters.add("out", 4, 2, Initial::uniform(-1, 1));
  LazyGraph graph{host, parameters, {.recompute_below = 0}};
};

/// Trains with some parameters frozen, and with all gradients and the same parameters set back after each step.
template <class Model>
void expect_the_others_train_alike(const std::vector<std::size_t>& frozen) {
  Model with, without;
  const AllValues first = all_values_of(with.parameters);
  for (const std::size_t number : frozen) with.parameters.freeze(with.parameters[number]);
  for (int step = 0; step < 2; ++step) {
    with.differentiate();
    without.differentiate();
    for (const std::size_t number : frozen) {
      const Gradient& gradient = with.parameters.gradient(with.parameters[number]);
      EXPECT_TRUE(!gradient.all && gradient.rows.empty());
    }
    with.parameters.sgd(0.1, 0.01);
    without.parameters.sgd(0.1, 0.01);
    for (const std::size_t number : frozen) without.parameters.value(without.parameters[number]).set(first[number]);
  }
  const AllValues trained = all_values_of(with.parameters), expected = all_values_of(without.parameters);
  EXPECT_NE(trained, first);
  EXPECT_LE(with.flops(), without.flops());
  EXPECT_EQ(trained, expected);
  EXPECT_LE(with.kernels(), without.kernels());
}

template <class Model>
class Frozen : public ::testing::Test {};
using Models = ::testing::Types<OfVertices<TreeLstm>, OfVertices<GatesCell>, OfVertices<OddCell>, OfLazyExpressions>;
TYPED_TEST_SUITE(Frozen, Models);

TYPED_TEST(Frozen, ParametersHaveNoGradientsAndTheOthersTrainAlike) {
  const std::size_t all = TypeParam().parameters.size();
  for (const std::size_t one : {std::size_t{0}, all / 2, all - 1}) {
    SCOPED_TRACE(one);
    expect_the_others_train_alike<TypeParam>({one});
    std::vector<std::size_t> others;
    for (std::size_t i = 0; i < all; ++i) {
      if (i != one) others.push_back(i);
    }
    expect_the_others_train_alike<TypeParam>(others);
  }
}

/// With all parameters frozen, what is left are the products of the forward pass.
TYPED_TEST(Frozen, ParametersAreConstantsUntilTheyAreUnfrozen) {
  TypeParam model, never;
  Parameters& parameters = model.parameters;
  const AllValues first = all_values_of(parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters.freeze(parameters[i]);
  EXPECT_TRUE(parameters.frozen(parameters[0]));
  model.differentiate();
  parameters.sgd(0.1, 0.01);
  EXPECT_EQ(all_values_of(parameters), first);
  const std::int64_t forward = model.flops();
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters.unfreeze(parameters[i]);
  model.differentiate();
  never.differentiate();
  EXPECT_GE(never.flops(), 2 * forward);
  EXPECT_GT(never.kernels(), model.kernels() - never.kernels());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(testing::dense(parameters, parameters[i]), testing::dense(never.parameters, never.parameters[i]));
  }
  EXPECT_EQ(model.flops() - forward, never.flops());
  EXPECT_THROW(parameters.freeze(never.parameters[0]), MisuseError);
}

}  // namespace
}  // namespace windrow
