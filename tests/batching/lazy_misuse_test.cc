// What recording a lazy expression refuses at the call, and what can be stored.
#include "tests/batching/cells.h"

namespace windrow::testing {
namespace {

class LazyMisuse : public ::testing::Test, protected OnHost {
 protected:
  template <class Body>
  std::string said_of(Body body) {
    return error_of<MisuseError>(body);
  }
  void expect_refused(const LazyExpr& bad, const std::string& why) {
    EXPECT_EQ(said_of([&] { bad.value(); }), "value" + why);
    EXPECT_EQ(said_of([&] { tanh(bad); }), "tanh" + why);
    EXPECT_EQ(said_of([&] { graph.input({1}) + bad; }), "add" + why);
    EXPECT_EQ(said_of([&] { graph.backward(std::array{bad}); }), "backward" + why);
    EXPECT_EQ(said_of([&] { bad.width(); }), "width" + why);
  }
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
  expect_refused(copy, ": an empty expression; expected one that a lazy graph recorded");
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
  EXPECT_EQ(said_of([&] { matmul(LazyWeight(w), LazyWeight(w)); }),
            "matmul: operands 2 x 3, 2 x 3; expected as many rows of the second as the first is wide");
  EXPECT_EQ(said_of([&] { matmul(x, exp(LazyWeight(w))); }),
            "matmul: operands vertices x 3, 2 x 3; expected as many rows of the second as the first is wide");
  EXPECT_EQ(said_of([&] { x - column_sum(LazyWeight(parameters.add("wide", 1, 4, Initial::zeros()))); }),
            "sub: operands vertices x 3, 1 x 4; expected operands of one shape");
  EXPECT_EQ(said_of([&] { graph.parameter(exp(LazyWeight(w))); }),
            "a parameter of 2 rows as an expression; expected one of 1 row");
  const LazyExpr two = graph.input({1, 2});
  EXPECT_EQ(said_of([&] { x + two; }), "add: operands vertices x 3, vertices x 2; expected operands of one shape");
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

TEST_F(LazyMisuse, TellsWhatDoesNotFit) {
  const LazyExpr x = graph.input({1, 2});
  EXPECT_EQ(said_of([&] {
              apply(op::matmul_tn, {x, x});
            }),
            "matmul_tn: mixes the rows of a batch; expected an operator that is elementwise or rowwise");
  EXPECT_EQ(said_of([&] {
              apply(op::segment_sum, {x}, {graph.index(std::array{0, 1})});
            }),
            "segment_sum: operand 0 is vertices x 2; expected a parameter");
  EXPECT_EQ(said_of([&] { graph.index(std::array{1, 2, 3, 4, 5}); }), "an index of 5 numbers; expected at most 4");
  EXPECT_EQ(said_of([&] { graph.backward({}); }), "backward() of no loss; expected one or more");
  EXPECT_EQ(said_of([&] { graph.backward(std::array{x}); }), "backward(): a loss of width 2; expected 1");
  EXPECT_EQ(said_of([&] { sum(std::span<const LazyExpr>()); }), "sum of no expressions; expected one or more");
  EXPECT_EQ(said_of([&] { apply(op::concat, std::vector<LazyOperand>(32, x), {}); }),
            "concat of 32 expressions; expected 31 at most");
  EXPECT_EQ(said_of([&] { x.scalar(); }), "scalar of an expression of width 2; expected 1");
}

TEST_F(LazyMisuse, KnowsExpressionsOfOtherGraphsAndOfThePast) {
  const LazyExpr x = graph.input({1, 2});
  LazyGraph other(host, parameters, {.use = LazyOptions::For::inference});
  EXPECT_EQ(said_of([&] { other.input({1, 2}) + x; }), "add: an expression of another lazy graph");
  const LazyExpr loss = row_sum(x);
  graph.backward(std::array{loss});
  EXPECT_EQ(said_of([&] { graph.backward(std::array{loss}); }),
            "backward() for a second time; expected clear() between them");
  EXPECT_EQ(x.value(), (std::vector<float>{1, 2}));
  graph.clear();
  EXPECT_EQ(said_of([&] { x.value(); }), "value: an expression from before clear(); expected one recorded since");
  const LazyExpr last = row_sum(other.input({3, 4}));
  EXPECT_EQ(last.scalar(), 7);
  EXPECT_EQ(said_of([&] { other.backward(std::array{last}); }),
            "backward() of a lazy graph for inference; expected one for training");
}

TEST_F(LazyMisuse, HandlesMayOutliveTheirGraph) {
  auto short_lived = std::make_unique<LazyGraph>(host, parameters);
  const LazyExpr x = short_lived->input({1, 2});
  const LazyIndex row = short_lived->index(1);
  LazyExpr copy = x, moved = std::move(copy);
  short_lived.reset();
  EXPECT_EQ(said_of([&] { moved.value(); }), "value: an expression of a lazy graph that is gone");
  EXPECT_EQ(said_of([&] { embedding(w, row); }), "embedding: an operand of a lazy graph that is gone");
  expect_refused(copy, ": an expression that was moved from");
}

}  // namespace
}  // namespace windrow::testing
