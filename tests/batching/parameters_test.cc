// Initial values of parameters, gradients that a program computes itself, and frozen parameters: no gradient is
// computed for them, and all others train as if it had been. Tables that are used in several ways at once: bags of
// indices, lookups and products; and whole parameters.
#include "tests/batching/check_minibatch.h"
#include "tests/batching/tied_cell.h"
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

TEST_F(InitialValues, AreOrthogonalInTheShorterDirection) {
  for (const auto& [rows, width] : {std::pair<Index, Index>{60, 60}, {70, 17}, {17, 70}, {1, 5}, {5, 1}, {0, 3}}) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
    const std::vector<float> x = of(rows, width, Initial::orthogonal(2));
    const Index count = std::min(rows, width), length = std::max(rows, width);
    const Index step = rows >= width ? 1 : width, stride = rows >= width ? width : 1;  // of columns, or of rows
    const auto element = [&](Index vector, Index k) {
      return static_cast<double>(x[static_cast<std::size_t>(vector * step + k * stride)]);
    };
    for (Index i = 0; i < count; ++i) {
      for (Index j = 0; j <= i; ++j) {
        double dot = 0;
        for (Index k = 0; k < length; ++k) dot += element(i, k) * element(j, k);
        ASSERT_NEAR(dot, i == j ? 4 : 0, 1e-5) << i << ", " << j;
      }
    }
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

class WholeParameters : public ::testing::Test, protected OnHost {};

TEST(Tables, AreLookedUpInBagsAndMultipliedAtOnce) {
  for (const bool tied : {false, true}) {
    OnHost s({.workers = 2}, first_seed());
    Parameters& parameters = s.parameters;
    const TiedCell cell(parameters, tied);
    const VertexFunction function("tied", {}, [&](Vertex& v) { cell(v); });
    Oracle oracle(parameters, [&](OracleVertex& v) { cell(v); });
    Runner runner(s.host, function, parameters, {.groups = 2, .group_flops = 1});
    check_minibatch(runner, parameters, oracle, function, {some_words(9, 1), some_words(1, 2), some_words(4, 3)});
    // The rows of lookups stay rows; the others are one tensor.
    const Gradient parts = parameters.gradient(cell.table);
    EXPECT_EQ(parts.all.has_value(), tied);
    EXPECT_FALSE(parts.rows.empty());
    for (const auto& [of, rows] : parts.rows) EXPECT_EQ(of.rows(), rows.rows());
    const Gradient sum = parameters.summed_gradient(cell.table);
    const Values summed = dense(parameters, cell.table);
    expect_near(parameters.dense_gradient(cell.table).get(), summed, 1e-5);
    if (!tied) {
      const std::vector<std::int32_t> of = sum.rows.at(0).of.get();
      const std::vector<float> rows = sum.rows.at(0).rows.get();
      Values all(summed.size(), 0);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        all[static_cast<std::size_t>(of[i / TiedCell::width]) * TiedCell::width + i % TiedCell::width] = rows[i];
      }
      expect_near(all, summed, 1e-5);
    }
    // One step of descent along both parts.
    const std::vector<float> before = parameters.value(cell.table).get();
    parameters.sgd(0.5);
    const std::vector<float> after = parameters.value(cell.table).get();
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i] - 0.5 * summed[i], 1e-5);
    parameters.forget_gradients();
    EXPECT_EQ(parameters.dense_gradient(cell.table).get(), Floats(24, 0));
  }
}

/// By apply(), which makes a function of parameters of a list of parameters, with a row for all rows.
TEST_F(WholeParameters, AreOperandsOfAnyOperatorAlone) {
  const Parameter w = parameters.add("w", 2, 2, Initial::constant(3)),
                  row = parameters.add("row", 1, 2, Initial::constant(2)),
                  one = parameters.add("one", 1, 1, Initial::constant(5));
  const LazyWeight twice = windrow::apply(op::add, {row, row}),
                   mixed = windrow::apply(op::mul, {windrow::apply(op::sub, {one, w}), twice}),
                   spread = windrow::apply(op::spread_columns, {one}, {}, op::to_width(2));
  const auto loss = [&](const auto& x, const auto& of_mixed, const auto& of_twice, const auto& of_spread) {
    return row_sum(matmul(x, of_mixed)) + row_sum(of_twice * x - of_spread);
  };
  const auto expect_gradients = [&] {
    EXPECT_EQ(dense(parameters, w), (Values{-4, -4, -8, -8}));
    EXPECT_EQ(dense(parameters, row), (Values{12 + 2, 12 + 4}));
    EXPECT_EQ(dense(parameters, one), (Values{24 - 2}));
    parameters.forget_gradients();
  };
  const VertexFunction function("alone", {}, [&](Vertex& v) {
    v.loss(loss(v.pull("x", 2), v.parameter(mixed), v.parameter(twice), v.parameter(spread)));
  });
  EXPECT_EQ(differentiated(function, {leaves(1, {1, 2})}).loss(), 48 + 2);
  expect_gradients();
  LazyGraph graph(host, parameters);
  const LazyExpr lazy = loss(graph.input({1, 2}), mixed, twice, spread);
  graph.backward(std::array{lazy});
  EXPECT_EQ(lazy.scalar(), 48 + 2);
  expect_gradients();
  const auto said = [](auto call) { return error_of<MisuseError>(call); };
  EXPECT_EQ(said([&] {
              windrow::apply(op::add, {w, LazyWeight(parameters.add("wide", 1, 3, Initial::zeros()))});
            }),
            "add: operands 2 x 2, 1 x 3; expected operands of one shape");
  EXPECT_EQ(said([&] { windrow::apply(op::concat, std::initializer_list<LazyWeight>{}); }),
            "concat of no operands; expected one or more");
}

/// A penalty once per minibatch is the loss of a vertex of its own, in a graph of its own.
TEST_F(WholeParameters, MayBePenalisedOncePerMinibatch) {
  const Parameter w = parameters.add("w", 2, 3, Initial::constant(3));
  const VertexFunction word("word", {}, [&](Vertex& v) { v.loss(row_sum(matmul(v.pull("x", 2), w))); });
  const VertexFunction penalty("penalty", {},
                               [&](Vertex& v) { v.loss(v.zeros(1) + column_sum(row_sum(square(v.parameter(w))))); });
  const VertexFunction function("both", {word, penalty});
  GraphData words = leaves(2, {1, 0, 1, 0}), once = leaves(1, {0, 0});
  words.kinds = {0, 0};
  once.kinds = {1};
  EXPECT_EQ(differentiated(function, {words, once, words}).loss(), 4 * 9 + 6 * 9);
  EXPECT_EQ(dense(parameters, w), (Values{4 + 6, 4 + 6, 4 + 6, 6, 6, 6}));
}

/// Sentence models show that the draws have the probabilities of the softmax.
TEST_F(WholeParameters, MayBeDrawnFromByKeys) {
  const Floats logits = {0, 1, -1, 2, -1e30f};
  const VertexFunction function("samples", {}, [&](Vertex& v) {
    v.push("drawn", sample(v.pull("x", 5), v.pull_index("keys", Presence::always, 3), first_seed()));
  });
  LazyGraph graph(host, parameters);
  std::set<float> drawn;
  for (std::int32_t i = 0; i < 50; ++i) {
    const std::array<std::int32_t, 3> keys = {7, i, 0};
    GraphData data = leaves(1, logits);
    data.indices["keys"] = {7, i, 0};
    const float one = *drawn.insert(computed(function, {data}).output("drawn").get()[0]).first;
    EXPECT_EQ(sample(graph.input(logits), graph.index(keys), first_seed()).scalar(), one);
  }
  EXPECT_GT(drawn.size(), 1u);
  EXPECT_FALSE(drawn.contains(4));
}

}  // namespace
}  // namespace windrow::testing
