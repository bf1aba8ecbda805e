// Cells and attention in lazy expressions; networks_test.cc has them in vertex functions.
#include <gtest/gtest.h>

#include "tests/batching/cells.h"
#include "tests/engine/support.h"
#include "tests/ops/cases.h"
#include "tests/seed.h"
#include "windrow/batching/lazy.h"
#include "windrow/models/layers.h"
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
  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, first_seed()};
  LazyGraph graph{host, parameters};
};

TEST_F(BuildingBlocks, GrusAreWhatTheirFormulasSay) {
  const Gru gru(parameters, "gru", {from, hidden});
  for (const char* name : {"gru bias", "gru recurrent bias"}) {
    std::vector<float> values;
    for (int i = 0; i < 12; ++i) values.push_back(static_cast<float>(i) / 8 - 0.5f);
    parameters.value(parameters.find(name)).set(values);
  }
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
