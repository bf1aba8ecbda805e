// Initial values of parameters, gradients that a program computes itself, and frozen parameters: no gradient is
// computed for them, and all others train as if it had been.
#include "tests/batching/attending_cell.h"
#include "tests/batching/cells.h"
#include "tests/batching/support.h"
#include "windrow/ops/static.h"

namespace windrow::testing {
namespace {

class InitialValues : public ::testing::Test, protected OnHost {
 protected:
  std::vector<float> of(Index rows, Index width, Initial initial) {
    return parameters.value(parameters.add("p" + std::to_string(parameters.size()), rows, width, initial)).get();
  }
  InitialValues() : OnHost({.workers = 2}, first_seed()) {}
};

/// Vectors within a matrix: the rows, or the columns.
struct Vectors {
  Index count, length;
  Index step, stride;  ///< from one vector to the next, and from one of its elements to the next
};

void expect_orthogonal(const std::vector<float>& x, const Vectors& of, double square) {
  const auto element = [&](Index vector, Index k) {
    return static_cast<double>(x[static_cast<std::size_t>(vector * of.step + k * of.stride)]);
  };
  for (Index i = 0; i < of.count; ++i) {
    for (Index j = 0; j <= i; ++j) {
      double dot = 0;
      for (Index k = 0; k < of.length; ++k) dot += element(i, k) * element(j, k);
      ASSERT_NEAR(dot, i == j ? square : 0, 1e-5) << i << ", " << j;
    }
  }
}

TEST_F(InitialValues, AreOrthogonalInTheShorterDirection) {
  for (const auto& [rows, width] : {std::pair<Index, Index>{60, 60}, {70, 17}, {17, 70}, {1, 5}, {5, 1}, {0, 3}}) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
    const std::vector<float> x = of(rows, width, Initial::orthogonal(2));
    const bool tall = rows >= width;
    expect_orthogonal(x, tall ? Vectors{width, rows, 1, width} : Vectors{rows, width, width, 1}, 4);
  }
}

TEST_F(InitialValues, AreDrawnInTheOrderOfParameters) {
  Parameters same(host, first_seed()), other(host, first_seed());
  const Initial draws[] = {Initial::orthogonal(), Initial::normal(0, 1), Initial::orthogonal()};
  std::vector<std::vector<float>> values;
  for (const Initial& draw : draws) values.push_back(of(4, 6, draw));
  for (std::size_t i = 0; i < std::size(draws); ++i) {
    EXPECT_EQ(same.value(same.add("p" + std::to_string(i), 4, 6, draws[i])).get(), values[i]);
  }
  EXPECT_NE(values[0], values[2]);
  other.add("first", 4, 6, Initial::normal(0, 1));
  EXPECT_EQ(other.value(other.add("second", 4, 6, Initial::normal(0, 1))).get(), values[1]);
}

TEST_F(InitialValues, MayBeTheIdentity) {
  EXPECT_EQ(of(2, 3, Initial::identity()), (std::vector<float>{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(of(3, 2, Initial::identity(0.5f)), (std::vector<float>{0.5f, 0, 0, 0.5f, 0, 0}));
}

TEST_F(InitialValues, KeepTheVarianceThroughRelu) {
  const auto mean_square = [](const std::vector<float>& x) {
    double sum = 0;
    for (float element : x) sum += static_cast<double>(element) * static_cast<double>(element);
    return sum / static_cast<double>(x.size());
  };
  EXPECT_NEAR(mean_square(of(200, 300, Initial::he_normal(200))), 2.0 / 200, 0.0005);
  EXPECT_NEAR(mean_square(of(200, 300, Initial::he_uniform(200))), 2.0 / 200, 0.0005);
}

class OwnGradients : public ::testing::Test, protected OnHost {
 protected:
  Tensor filled(float value) const { return tensor(Floats(6, value), 3); }
  std::vector<float> gradient() const { return parameters.gradient(w).all->get(); }

  Parameter w = parameters.add("w", 2, 3, Initial::constant(1));
};

TEST_F(OwnGradients, AddUpInAMinibatchAndEndWithIt) {
  EXPECT_EQ(parameters.begin_minibatch(), 0u);
  const Tensor first = filled(1);
  parameters.add_gradient(w, first);
  EXPECT_TRUE(parameters.gradient(w).all->same_view(first)) << "copied";
  parameters.add_gradient(w, filled(2));
  EXPECT_EQ(gradient(), std::vector<float>(6, 3));
  EXPECT_EQ(first.get(), std::vector<float>(6, 1)) << "changed what was given";
  EXPECT_EQ(parameters.begin_minibatch(), 1u);
  EXPECT_FALSE(parameters.gradient(w).all);
  EXPECT_EQ(parameters.minibatches(), 2u);
  parameters.add_gradient(w, filled(5));
  parameters.sgd(0.1);
  EXPECT_EQ(parameters.value(w).get(), std::vector<float>(6, 0.5f));
}

TEST_F(OwnGradients, AreCopiedIfTheyAreKept) {
  const Tensor reused = filled(1);
  for (const float value : {1.0f, 2.0f, 4.0f}) {
    parameters.keep_gradients();
    parameters.begin_minibatch();
    reused.set(std::vector<float>(6, value));  // as a replay does
    parameters.add_gradient(w, reused);
  }
  EXPECT_EQ(gradient(), std::vector<float>(6, 7));
}

TEST_F(OwnGradients, AreRefusedWhereTheyDoNotFit) {
  const Tensor wrong(host, 3, 2);
  EXPECT_EQ(error_of<MisuseError>([&] { parameters.add_gradient(w, wrong); }),
            "add_gradient: 3 x 2 for parameter 'w'; expected 2 x 3");
  EXPECT_FALSE(parameters.gradient(w).all);
  Static recorded(host, [&](const StaticInputs&) -> std::vector<Tensor> {
    parameters.begin_minibatch();
    return {};
  });
  expect_error<MisuseError>([&] { recorded(); }, "Parameters::begin_minibatch() in the body of a Static");
}

using AllValues = std::vector<std::vector<float>>;

/// A cell as a vertex function, with its graphs.
template <class Cell>
struct OfVertices : OnHost {
  Minibatch differentiate() { return runner.differentiate(graphs.pointers); }
  std::int64_t flops() const { return runner.stats().multiply_flops; }
  std::int64_t kernels() const { return runner.stats().kernels; }

  static std::vector<GraphData> data() {
    std::mt19937 random(5);
    std::vector<GraphData> all;
    for (int i = 0; i < 4; ++i) all.push_back(graph_for<Cell>(9, Form::trees, random));
    return all;
  }
  Cell cell{parameters};
  VertexFunction function{"cell", shape_of<Cell>(), [this](Vertex& v) { cell(v); }};
  Runner runner{host, function, parameters};
  Graphs graphs{function, data()};
};

/// Trains with some parameters frozen, and with all gradients and the same parameters set back after each step.
template <class Model>
void expect_the_others_train_alike(const std::vector<std::size_t>& frozen) {
  Model with, without;
  const AllValues first = values_of(with.parameters);
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
  const AllValues trained = values_of(with.parameters), expected = values_of(without.parameters);
  EXPECT_NE(trained, first);
  EXPECT_LE(with.flops(), without.flops());
  EXPECT_EQ(trained, expected);
  EXPECT_LE(with.kernels(), without.kernels());
}

template <class Model>
class Frozen : public ::testing::Test {};
using Models = ::testing::Types<OfVertices<TreeLstm>, OfVertices<OddCell>, OfVertices<AttendingCell>>;
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
  const AllValues first = values_of(parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters.freeze(parameters[i]);
  EXPECT_TRUE(parameters.frozen(parameters[0]));
  model.differentiate();
  parameters.sgd(0.1, 0.01);
  EXPECT_EQ(values_of(parameters), first);
  const std::int64_t forward = model.flops();
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters.unfreeze(parameters[i]);
  model.differentiate();
  never.differentiate();
  EXPECT_GE(never.flops(), 2 * forward);
  EXPECT_GT(never.kernels(), model.kernels() - never.kernels());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(dense(parameters, parameters[i]), dense(never.parameters, never.parameters[i]));
  }
  EXPECT_EQ(model.flops() - forward, never.flops());
  EXPECT_THROW(parameters.freeze(never.parameters[0]), MisuseError);
}

}  // namespace
}  // namespace windrow::testing
