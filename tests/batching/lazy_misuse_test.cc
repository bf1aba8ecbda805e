// What recording a lazy expression refuses at the call, and what can be stored.
#include <gtest/gtest.h>

#include <array>

#include "tests/batching/cells.h"
#include "tests/engine/support.h"
#include "windrow/batching/lazy.h"
#include "windrow/batching/lazy_cell.h"

namespace windrow {
namespace {

using testing::dense;
using testing::error_of;

class LazyMisuse : public ::testing::Test {
 protected:
  template <class Body>
  std::string said_of(Body body) {
    return error_of<MisuseError>(body);
  }
  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, 1};
  Parameter w = parameters.add("w", 2, 3, Initial::constant(1));
  LazyGraph graph{host, parameters};
};

/// A list keeps what its operands name, also where these were temporaries.
TEST_F(LazyMisuse, OfAListOfTemporariesIsNone) {
  std::vector<LazyOperand> parts;
  for (int i = 0; i < 40; ++i) parts.push_back(2.0 * graph.input({static_cast<float>(i)}));
  std::vector<LazyOperand> product = {LazyOperand(graph.input({1, 2})), LazyOperand(parameters.find("w"))};
  const std::vector<float> joined = concat(parts).value();
  for (int i = 0; i < 40; ++i) EXPECT_EQ(joined[static_cast<std::size_t>(i)], 2 * static_cast<float>(i));
  EXPECT_EQ(windrow::apply(op::matmul, product).value(), (std::vector<float>{3, 3, 3}));
}

TEST_F(LazyMisuse, OfChildrenInACellWithoutAListIsToldByTheCell) {
  const std::string why = ": to_children in a cell without a list; expected a body that calls each()";
  EXPECT_EQ(said_of([&] {
              graph.cell("reader", [&](CellBody& c) { c.result(sum_children(matmul(to_children(c.operand(2)), w))); });
            }),
            "reader" + why);
  EXPECT_EQ(
      said_of([&] { graph.cell("constant", [](CellBody& c) { c.result(max_children(to_children(c.zeros(2)))); }); }),
      "constant" + why);
  const LazyCell read =
      graph.cell("list", [](CellBody& c) { c.result(sum_children(c.each(2) * to_children(c.operand(2)))); });
  EXPECT_EQ(read({graph.input({1, 2})}, {}, std::array{graph.input({3, 4})}).value(), (std::vector<float>{3, 8}));
}

TEST_F(LazyMisuse, OfParametersAloneIsToldAtTheCall) {
  const std::vector<LazyOperand> alone = {w, exp(LazyWeight(w))};
  EXPECT_EQ(said_of([&] { windrow::apply(op::add, alone); }),
            "add: only parameters; expected an expression among them, or LazyWeight(w) to compute with parameters");
}

TEST_F(LazyMisuse, OfAnEmptyExpressionIsToldAtTheCall) {
  LazyExpr empty;
  const LazyExpr copy = empty, x = graph.input({1, 2});
  const std::string expected = ": an empty expression; expected one that a lazy graph recorded";
  EXPECT_EQ(said_of([&] { tanh(empty); }), "tanh" + expected);
  EXPECT_EQ(said_of([&] { x + copy; }), "add" + expected);
  EXPECT_EQ(said_of([&] { copy.value(); }), "value" + expected);
  EXPECT_EQ(said_of([&] { copy.width(); }), "width" + expected);
  EXPECT_EQ(said_of([&] { graph.backward(std::array{copy}); }), "backward" + expected);
  std::vector<LazyExpr> table(3);
  table[1] = x;
  empty = table[1];
  EXPECT_EQ(empty.value(), (std::vector<float>{1, 2}));
}

TEST_F(LazyMisuse, OfAMatrixAsARowIsToldWhileRecording) {
  const LazyExpr x = graph.input({1, 2, 3});
  const std::string row = "; expected operands of one shape, or parameters of one row";
  EXPECT_EQ(said_of([&] { x* w; }), "mul: operands vertices x 3, 2 x 3" + row);
  EXPECT_EQ(said_of([&] { w - x; }), "sub: operands 2 x 3, vertices x 3" + row);
  EXPECT_EQ(said_of([&] { x / exp(LazyWeight(w)); }), "div: operands vertices x 3, 2 x 3" + row);
  EXPECT_EQ(said_of([&] { x - column_sum(LazyWeight(parameters.add("wide", 1, 4, Initial::zeros()))); }),
            "sub: operands vertices x 3, 1 x 4; expected operands of one shape");
  EXPECT_EQ(said_of([&] { graph.parameter(exp(LazyWeight(w))); }),
            "a parameter of 2 rows as an expression; expected one of 1 row");
  EXPECT_EQ(said_of([&] {
              x + graph.input({1, 2});
            }),
            "add: operands vertices x 3, vertices x 2; expected operands of one shape");
  EXPECT_EQ(said_of([&] { graph.zeros(-1); }), "a constant of width -1; expected 0 to 2147483647");
  EXPECT_EQ(said_of([&] { graph.zeros(INT64_MAX); }),
            "a constant of width 9223372036854775807; expected 0 to 2147483647");
  EXPECT_EQ(said_of([&] { graph.constant(1, 1e39); }), "constant 1e+39; expected a number that a float holds");
  LazyWeight sum = w;
  for (int i = 0; i < LazyWeight::most_operations; ++i) sum = sum + LazyWeight(w);
  EXPECT_EQ(said_of([&] { sum + LazyWeight(w); }),
            "add of parameters alone: 1001 operations on parameters; expected at most 1000");
}

TEST_F(LazyMisuse, OfAGraphThatWasDifferentiatedIsToldWhileRecording) {
  const LazyExpr x = row_sum(matmul(graph.input({1, 2}), w));
  graph.backward(std::array{x});
  const std::string expected = ": recorded after backward(); expected clear() between them";
  EXPECT_EQ(said_of([&] { x + x; }), "add" + expected);
  EXPECT_EQ(said_of([&] { graph.input({1}); }), "input" + expected);
  EXPECT_EQ(said_of([&] { embedding(w, graph.index(0)); }), "embedding" + expected);
  EXPECT_EQ(said_of([&] { graph.parameter(parameters.add("row", 1, 1, Initial::zeros())); }), "embedding" + expected);
  EXPECT_EQ(x.scalar(), 9);
  EXPECT_EQ(dense(parameters, w), (std::vector<double>{1, 1, 1, 2, 2, 2}));
  graph.clear();
  EXPECT_EQ(graph.input({1}).scalar(), 1);
}

TEST_F(LazyMisuse, OfIndicesIsToldWhileRecording) {
  const LazyExpr x = graph.input({1, 2, 3});
  EXPECT_EQ(said_of([&] { embedding(w, graph.index(2)); }), "embedding: index 2; expected 0 to 1");
  EXPECT_EQ(said_of([&] { embedding(w, graph.index(-1)); }), "embedding: index -1; expected 0 to 1");
  EXPECT_EQ(said_of([&] { pick(x, graph.index(3)); }), "pick: index 3; expected -1 to 2");
  const Parameter empty = parameters.add("empty", 0, 3, Initial::zeros());
  EXPECT_EQ(said_of([&] { embedding(empty, graph.index(0)); }),
            "embedding: index 0; expected none, since there is nothing to index");
  EXPECT_EQ(said_of([&] { softmax_cross_entropy(x, graph.index(3)); }),
            "softmax_cross_entropy: index 3; expected -1 to 2");
  EXPECT_EQ(softmax_cross_entropy(x, graph.index(-1)).scalar(), 0);
  EXPECT_EQ(pick(x, graph.index(2)).scalar(), 3);  // the graph goes on
  EXPECT_EQ(pick(x, graph.index(-1)).scalar(), 0);
}

}  // namespace
}  // namespace windrow
