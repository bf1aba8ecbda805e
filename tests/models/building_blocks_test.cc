// The cells that vertex functions and lazy expressions share compute the same with both.
#include <gtest/gtest.h>

#include <tuple>

#include "tests/batching/cells.h"
#include "tests/batching/random_row.h"
#include "tests/engine/support.h"
#include "tests/ops/cases.h"
#include "tests/seed.h"
#include "windrow/batching/lazy.h"
#include "windrow/models/attention.h"
#include "windrow/models/lstm.h"
#include "windrow/models/tree_lstm.h"

namespace windrow {
namespace {

using testing::dense;
using testing::error_of;
using testing::expect_close;
using testing::first_seed;
using testing::Values;

constexpr Index from = 3, hidden = 4;

class BuildingBlocks : public ::testing::Test {
 protected:
  /// The gradients of all parameters.
  std::vector<Values> gradients() const {
    std::vector<Values> all;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      all.push_back(dense(parameters, parameters[p]));
      const Type type = parameters[p].type();
      all.back().resize(testing::elements(type), 0);
    }
    return all;
  }
  void expect_equal(const std::vector<Values>& found, const std::vector<Values>& expected) {
    for (std::size_t p = 0; p < expected.size(); ++p) {
      SCOPED_TRACE(parameters.name(parameters[p]));
      expect_close(found[p], expected[p], 1e-5);
    }
  }
  /// Runs sequences of inputs as vertices, then `lazy`, which returns the loss of one, and compares.
  template <class Lazy>
  void compare_sequences(const VertexFunction& function, Lazy lazy) {
    std::mt19937 random(first_seed());
    std::vector<GraphData> data;
    for (const std::int32_t length : {5, 1, 3}) {
      GraphData& chain = data.emplace_back();
      for (std::int32_t t = 0; t < length; ++t) {
        if (t > 0) chain.children.push_back(t - 1);
        chain.child_begin.push_back(static_cast<std::int32_t>(chain.children.size()));
        for (double value : testing::random_row(from, random)) {
          chain.values["x"].push_back(static_cast<float>(value));
        }
      }
    }
    const testing::Graphs graphs(function, data);
    Runner runner(host, function, parameters);
    const double loss = runner.differentiate(graphs.pointers).loss();
    const std::vector<Values> expected = gradients();
    std::vector<LazyExpr> losses;
    for (const GraphData& chain : data) {
      std::vector<LazyExpr> inputs;
      for (std::size_t at = 0; at < chain.values.at("x").size(); at += from) {
        inputs.push_back(graph.input(std::span(chain.values.at("x")).subspan(at, from)));
      }
      losses.push_back(lazy(inputs));
    }
    graph.backward(losses);
    double sum = 0;
    for (const LazyExpr& one : losses) sum += static_cast<double>(one.scalar());
    EXPECT_NEAR(sum, loss, 1e-4);
    expect_equal(gradients(), expected);
  }

  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, first_seed()};
  LazyGraph graph{host, parameters};
};

TEST_F(BuildingBlocks, LstmsAreTheSameInBothFrontEnds) {
  const Lstm lstm(parameters, "lstm", {from, hidden});
  const VertexFunction function("lstm", {.arity = 1}, [&](Vertex& v) {
    v.loss(row_sum(square(lstm.step(v, lstm.states(v, "h"), lstm.project(v.pull("x", from))))));
  });
  compare_sequences(function, [&](const std::vector<LazyExpr>& inputs) {
    auto [h, c] = std::pair(graph.zeros(hidden), graph.zeros(hidden));
    LazyExpr loss = graph.zeros(1);
    for (const LazyExpr& x : inputs) {
      std::tie(h, c) = lstm.cell(lstm.project(x), h, c);
      loss = loss + row_sum(square(h));
    }
    return loss;
  });
}

/// And as its formulas say.
TEST_F(BuildingBlocks, GrusAreTheSameInBothFrontEnds) {
  const Gru gru(parameters, "gru", {from, hidden});
  for (const char* name : {"gru bias", "gru recurrent bias"}) {
    std::vector<float> values;
    for (int i = 0; i < 12; ++i) values.push_back(static_cast<float>(i) / 8 - 0.5f);
    parameters.value(parameters.find(name)).set(values);
  }
  const VertexFunction function("gru", {.arity = 1}, [&](Vertex& v) {
    v.loss(row_sum(square(gru.step(v, gru.state(v, "h"), gru.project(v.pull("x", from))))));
  });
  compare_sequences(function, [&](const std::vector<LazyExpr>& inputs) {
    LazyExpr h = graph.zeros(hidden), loss = graph.zeros(1);
    for (const LazyExpr& x : inputs) {
      h = gru.cell(gru.project(x), h);
      loss = loss + row_sum(square(h));
    }
    return loss;
  });
  graph.clear();
  const std::vector<float> x = {0.5, -1, 2}, before = {1, -0.5, 0.25, 0};
  const auto of = [&](const char* name) { return parameters.value(parameters.find(name)).get(); };
  const std::vector<float> in = of("gru in"), recurrent = of("gru recurrent"), bias = of("gru bias"),
                           other = of("gru recurrent bias");
  const std::vector<float> found = gru.cell(gru.project(graph.input(x)), graph.input(before)).value();
  for (std::size_t c = 0; c < hidden; ++c) {
    const auto gate = [&](std::size_t number) {
      const std::size_t column = number * hidden + c;
      double input = bias[column], state = other[column];
      for (std::size_t i = 0; i < from; ++i) input += x[i] * in[i * 3 * hidden + column];
      for (std::size_t i = 0; i < hidden; ++i) state += before[i] * recurrent[i * 3 * hidden + column];
      return std::pair(input, state);
    };
    const auto sigmoid_of = [](std::pair<double, double> both) {
      return 1 / (1 + std::exp(-both.first - both.second));
    };
    const double reset = sigmoid_of(gate(0)), keep = sigmoid_of(gate(1));
    const double fresh = std::tanh(gate(2).first + reset * gate(2).second);
    EXPECT_NEAR(found[c], (1 - keep) * fresh + keep * before[c], 1e-5);
  }
}

TEST_F(BuildingBlocks, TreeLstmsAreTheSameInBothFrontEnds) {
  const TreeLstm tree(parameters, {.vocabulary = 5, .embedding = from, .hidden = hidden, .classes = 3});
  GraphData data{.child_begin = {0, 0, 0, 2}, .children = {0, 1}};  // two leaves and a root
  data.indices = {{"word", {3, 1, -1}}, {"label", {0, 2, 1}}};
  const VertexFunction function = tree.function();
  const testing::Graphs graphs(function, {data});
  Runner runner(host, function, parameters);
  const double loss = runner.differentiate(graphs.pointers).loss();
  const std::vector<Values> expected = gradients();
  const std::pair none(graph.zeros(hidden), graph.zeros(hidden));
  const auto left = tree.cell(tree.read(graph.index(3)), none, none);
  const auto right = tree.cell(tree.read(graph.index(1)), none, none);
  const auto root = tree.cell(graph.zeros(from), left, right);
  const std::vector<LazyExpr> losses = {softmax_cross_entropy(tree.classify(left.first), graph.index(0)),
                                        softmax_cross_entropy(tree.classify(right.first), graph.index(2)),
                                        softmax_cross_entropy(tree.classify(root.first), graph.index(1))};
  const LazyExpr all = sum(losses);
  graph.backward(losses);
  EXPECT_NEAR(all.scalar(), loss, 1e-4);
  expect_equal(gradients(), expected);
}

TEST_F(BuildingBlocks, AParameterSetMayHoldSeveralTreeLstms) {
  const TreeLstmSizes sizes{.vocabulary = 5, .embedding = from, .hidden = hidden, .classes = 3};
  const TreeLstm question(parameters, sizes, "question "), answer(parameters, sizes, "answer ");
  const ChildSumTreeLstm third(parameters, sizes, ChildSumTreeLstm::Children::attention, "third ");
  for (const std::string name : {"question words", "answer words", "third attention score"}) {
    EXPECT_EQ(parameters.name(parameters.find(name)), name);
  }
  EXPECT_NE(error_of<MisuseError>([&] { TreeLstm(parameters, sizes, "answer "); }), "");
  const std::pair none(graph.zeros(hidden), graph.zeros(hidden));
  const auto of = [&](const TreeLstm& tree) { return tree.cell(tree.read(graph.index(3)), none, none).first; };
  graph.backward(std::vector{row_sum(of(question) * of(answer))});
  for (const char* const name : {"question leaf", "answer leaf"}) {
    const Values gradient = dense(parameters, parameters.find(name));
    EXPECT_NE(gradient, Values(gradient.size(), 0)) << name;
  }
}

/// A key that is hidden counts for nothing; otherwise a query attends to lists of any length.
TEST_F(BuildingBlocks, AttentionIsToListsOfAnyLength) {
  const AdditiveAttention additive(parameters, "attention", {hidden, from, 5});
  const LazyExpr query = graph.input({0.5, -0.25, 1, 2});
  std::vector<LazyExpr> keys, masks;
  for (int i = 0; i < 21; ++i) {
    const auto x = static_cast<float>(i);
    keys.push_back(graph.input({x / 8, 1 - x / 16, -x / 32}));
    masks.push_back(graph.input({i == 7 ? -1e30f : 0}));
  }
  std::vector<LazyExpr> seen = keys;
  seen.erase(seen.begin() + 7);
  const auto as_doubles = [](const std::vector<float>& row) { return Values(row.begin(), row.end()); };
  expect_close(as_doubles(attend(additive, query, keys, keys, masks).value()),
               as_doubles(attend(additive, query, seen, seen).value()), 1e-5);
  EXPECT_EQ(attend(DotAttention(), keys[2], std::span(keys).first(1), std::span(keys).first(1)).value(),
            keys[0].value());
  const auto said = [](auto call) { return error_of<MisuseError>(call); };
  EXPECT_EQ(said([&] { attend(additive, query, keys, keys, std::span(masks).first(2)); }),
            "attend: 2 masks for 21 keys; expected as many");
  EXPECT_EQ(said([&] { attend(DotAttention(), query, keys, keys); }),
            "dot_attention: a query of width 4 and keys of width 3; expected one width");
  EXPECT_EQ(said([&] { attend(additive, query, keys, std::span(keys).first(2)); }),
            "weighted_sum of 2 expressions by 21 weights; expected as many");
}

}  // namespace
}  // namespace windrow
