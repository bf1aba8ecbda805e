// What tracing refuses, and what it says.
#include "windrow/batching/vertex_function.h"

#include "tests/batching/support.h"

namespace windrow::testing {
namespace {

class Tracing : public ::testing::Test, protected OnHost {
 protected:
  /// What is said when a function of arity 2 is traced.
  std::string said_of(const std::function<void(Vertex&)>& body) {
    return error_of<MisuseError>([&] { VertexFunction("cell", {.arity = 2}, body); });
  }

  const Parameter bias_ = parameters.add("bias", 1, 4, Initial::zeros());
  const Parameter w_ = parameters.add("w", 3, 4, Initial::zeros());
};

TEST_F(Tracing, NamesOperatorAndShapesThatDoNotFit) {
  EXPECT_EQ(said_of([&](Vertex& v) { matmul(v.pull("x", 5), w_); }),
            "cell: matmul: operands vertices x 5, 3 x 4; expected as many rows of the second as the first is wide");
  EXPECT_EQ(said_of([&](Vertex& v) { v.pull("x", 5) + v.pull("y", 4); }),
            "cell: add: operands vertices x 5, vertices x 4; expected operands of one shape");
  EXPECT_EQ(said_of([&](Vertex& v) { slice(v.pull("x", 5), 3, 6); }),
            "cell: slice: operands vertices x 5; expected columns [3, 6) among those there are");
}

TEST_F(Tracing, WantsStatesGatheredWithinTheArityAndScatteredOnceInTheirShape) {
  EXPECT_EQ(said_of([&](Vertex& v) { v.gather(2, v.state("h", 3)); }),
            "cell: gather(2) of state 'h'; expected less than 2, the arity");
  const VertexFunction without("cell", {}, [](Vertex& v) { v.state("h", 3); });
  EXPECT_EQ(error_of<MisuseError>([&] { InputGraph(without, {}); }),
            "cell: state 'h' is never scattered; expected once");
  EXPECT_EQ(said_of([&](Vertex& v) {
              const State h = v.state("h", 3);
              v.scatter(h, v.gather(0, h));
              v.scatter(h, v.gather(1, h));
            }),
            "cell: state 'h' is scattered twice; expected once");
  EXPECT_EQ(said_of([&](Vertex& v) { v.scatter(v.state("h", 3), v.pull("x", 4)); }),
            "cell: state 'h' is vertices x 3, and vertices x 4 was scattered; expected one shape");
  EXPECT_EQ(said_of([&](Vertex& v) { v.state("h", 3), v.state("h", 4); }),
            "cell: state 'h' is declared twice; expected once");
}

TEST_F(Tracing, WantsEachNameOnceAndALossOfWidthOne) {
  EXPECT_EQ(said_of([&](Vertex& v) { v.pull_index("(vertex)"); }),
            "cell: an input named '(vertex)'; expected a name without a bracket first");
  EXPECT_EQ(said_of([&](Vertex& v) { v.pull("x", 3), v.pull("x", 3); }), "cell: 'x' is pulled twice; expected once");
  EXPECT_EQ(said_of([&](Vertex& v) { v.pull_index("i"), v.pull_index("i"); }),
            "cell: 'i' is pulled twice; expected once");
  EXPECT_EQ(said_of([&](Vertex& v) {
              const Expr x = v.pull("x", 3);
              v.push("out", x);
              v.push("out", x);
            }),
            "cell: 'out' is pushed twice; expected once");
  EXPECT_EQ(said_of([&](Vertex& v) { v.loss(v.pull("x", 3)); }), "cell: a loss is vertices x 3; expected vertices x 1");
}

TEST_F(Tracing, RefusesWhatMixesVerticesOrIsNoValueOfOne) {
  EXPECT_EQ(said_of([&](Vertex& v) { apply(op::column_sum, {v.pull("x", 3)}); }),
            "cell: column_sum: mixes the rows of a batch; expected an operator that is elementwise or rowwise");
  EXPECT_EQ(said_of([&](Vertex& v) { apply(op::gather_rows, {v.pull("x", 3)}, {v.pull_index("i")}); }),
            "cell: gather_rows: operand 0 is vertices x 3; expected a parameter");
  const auto rows = [&](Vertex& v, Rows count) {
    return apply(op::spread_rows, {slice(v.parameter(bias_), 0, 2)}, {}, op::to_rows(count));
  };
  EXPECT_EQ(said_of([&](Vertex& v) { rows(v, Rows::vertices()); }),
            "cell: spread_rows: makes vertices x 2 of parameters alone; expected a counted number of rows");
  EXPECT_EQ(said_of([&](Vertex& v) { rows(v, Rows::edges()); }),
            "cell: spread_rows: makes edges x 2 of parameters alone; expected a counted number of rows");
  EXPECT_EQ(said_of([&](Vertex& v) { v.push("w", v.parameter(w_)); }),
            "cell: 'w' is a parameter; expected a value of the vertex");
  EXPECT_EQ(said_of([&](Vertex& v) { apply(op::sgd, {v.parameter(w_)}, {}, op::at_rate(1)); }),
            "cell: sgd: changes its result in place; expected an operator that makes one");
}

TEST_F(Tracing, RefusesWidthsAndConstantsBeyondReason) {
  EXPECT_EQ(said_of([&](Vertex& v) { v.state("h", -1); }), "cell: 'h' has width -1; expected 0 to 2147483647");
  EXPECT_EQ(said_of([&](Vertex& v) { v.pull("x", Index{1} << 62); }),
            "cell: 'x' has width 4611686018427387904; expected 0 to 2147483647");
  EXPECT_EQ(said_of([&](Vertex& v) { v.pull_index("i", Presence::sometimes, 2); }),
            "cell: 'i' may be absent; expected width 1");
  EXPECT_EQ(said_of([&](Vertex& v) { v.constant(1, -1e39); }),
            "cell: constant -1e+39; expected a number that a float holds");
  EXPECT_NO_THROW(VertexFunction(
      "cell", {}, [](Vertex& v) { v.push("masked", v.constant(1, -std::numeric_limits<double>::infinity())); }));
}

TEST_F(Tracing, RefusesOperandsThatNeitherRowsNorColumnsFit) {
  EXPECT_EQ(said_of([&](Vertex& v) { v.pull("x", 3) * w_; }),
            "cell: mul: operands vertices x 3, 3 x 4; expected operands of one shape, or parameters of one row");
  EXPECT_EQ(said_of([&](Vertex& v) { v.pull("x", 3) - bias_; }),
            "cell: sub: operands vertices x 3, 1 x 4; expected operands of one shape");
  EXPECT_EQ(said_of([&](Vertex& v) { v.zeros(-1); }), "cell: 'constant' has width -1; expected 0 to 2147483647");
}

TEST_F(Tracing, RefusesStatesOfAnotherFunction) {
  std::optional<State> kept;
  VertexFunction first("first", {.arity = 1}, [&](Vertex& v) {
    kept = v.state("h", 3);
    v.scatter(*kept, v.gather(0, *kept));
  });
  EXPECT_EQ(said_of([&](Vertex& v) { v.gather(0, *kept); }), "cell: gather of a state of another vertex function");
  EXPECT_EQ(said_of([&](Vertex& v) { v.scatter(*kept, v.pull("x", 3)); }),
            "cell: scatter of a state of another vertex function");
}

TEST_F(Tracing, RefusesExpressionsOfAnotherFunction) {
  std::optional<Expr> kept;
  VertexFunction first("first", {}, [&](Vertex& v) { kept = v.pull("x", 3); });
  EXPECT_EQ(error_of<MisuseError>([&] { tanh(*kept); }),
            "tanh: an expression of a vertex function that was already traced");
  EXPECT_EQ(said_of([&](Vertex& v) { v.push("x", *kept); }), "cell: an expression of another vertex function");
  EXPECT_EQ(said_of([&](Vertex& outer) {
              const Expr x = outer.pull("x", 3);
              VertexFunction("inner", {}, [&](Vertex& v) { x + v.pull("y", 3); });
            }),
            "add: expressions of two vertex functions; expected one");
}

TEST_F(Tracing, RefusesParametersAloneAndMoreTypesThanItCanName) {
  EXPECT_EQ(
      error_of<MisuseError>([&] { concat(w_, w_); }),
      "concat: only parameters; expected an expression among them, such as Vertex::parameter(w), or LazyWeight(w) for "
      "lazy expressions");
  EXPECT_EQ(error_of<MisuseError>([&] { VertexFunction("wide", {.arity = 32}, [](Vertex&) {}); }),
            "wide: arity and optional indices are 32 together; expected 31 at most");
  EXPECT_EQ(error_of<MisuseError>([&] { VertexFunction("wide", {.arity = SIZE_MAX - 1}, [](Vertex&) {}); }),
            "wide: arity and optional indices are 4294967295 together; expected 31 at most");
  EXPECT_EQ(said_of(nullptr), "cell: no body; expected a function of a Vertex");
}

TEST(Parameters, AloneAreRefusedByTheCompilerWithWhatToWriteInstead) {
  std::string command =
      "echo '#include \"windrow/batching/lazy.h\"\nvoid f(windrow::Parameter row, windrow::Parameter w) { "
      "matmul(row, w); exp(row); row + w; }' | " WINDROW_COMPILER " -std=c++20 -fsyntax-only -x c++";
  for (const char* const room : {"engine", "memory", "ops", "batching"}) {
    command += std::string(" -I") + WINDROW_ROOMS + "/" + room + "/include";
  }
  const auto close = [](std::FILE* file) { ::pclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> output(::popen((command + " - 2>&1").c_str(), "r"));
  std::string said;
  for (int c = std::fgetc(output.get()); c != EOF; c = std::fgetc(output.get())) said += static_cast<char>(c);
  EXPECT_NE(said.find("an operator of parameters alone: make one of them an expression, by Vertex::parameter(w) in a "
                      "vertex function, or by LazyWeight(w) for lazy expressions"),
            std::string::npos)
      << said;
}

/// Each function has a name in the namespace.
namespace every_function {
using windrow::abs, windrow::add_channel_bias, windrow::arg_top_k, windrow::argmax, windrow::argmax_matmul,
    windrow::binary_cross_entropy, windrow::clamp, windrow::column_sum, windrow::conv2d, windrow::dropout, windrow::elu,
    windrow::exp, windrow::gelu, windrow::hinge, windrow::layer_norm, windrow::leaky_relu, windrow::log,
    windrow::log_add_exp, windrow::log_matmul, windrow::log_sigmoid, windrow::log_softmax, windrow::log_sum_exp,
    windrow::matmul, windrow::matmul_each, windrow::matmul_each_nt, windrow::matmul_nt, windrow::max_matmul,
    windrow::max_pool2d, windrow::maximum, windrow::minimum, windrow::mul_columns, windrow::pick, windrow::pow,
    windrow::relu, windrow::reverse_gradient, windrow::rms_norm, windrow::row_dot, windrow::row_max, windrow::row_sum,
    windrow::sample, windrow::scale_shift, windrow::sigmoid, windrow::silu, windrow::slice,
    windrow::smoothed_cross_entropy, windrow::softmax, windrow::softmax_cross_entropy, windrow::softplus, windrow::sqrt,
    windrow::square, windrow::squared_distance, windrow::stop_gradient, windrow::tanh, windrow::top_k;
}

/// A class with members of the names of functions, which are therefore called with their namespace.
struct Layer {
  Parameter w, b;

  auto tanh(const auto& x) const { return windrow::tanh(windrow::matmul(x, w) + b); }
  auto layer_norm(const auto& x) const { return windrow::layer_norm(x); }
  auto row_dot(const auto& x) const { return windrow::row_dot(x, windrow::scale_shift(x, 2, 1)); }
  LazyWeight square() const { return windrow::square(LazyWeight(w)); }
  auto loss(const auto& x) const { return row_dot(layer_norm(tanh(x))); }
};

/// Both kinds of expressions find their own function, and give one value; and the line of the call is told.
TEST(QualifiedCall, FindsTheFunctionBesideAMemberOfItsName) {
  OnHost s;
  const Layer layer{s.parameters.add("w", 2, 3, Initial::uniform(-1, 1)),
                    s.parameters.add("b", 1, 3, Initial::uniform(-1, 1))};
  const Floats x = {0.5f, -2};
  const VertexFunction function("f", {}, [&](Vertex& v) { v.push("loss", layer.loss(v.pull("x", 2))); });
  LazyGraph graph(s.host, s.parameters);
  EXPECT_FLOAT_EQ(layer.loss(graph.input(x)).scalar(), s.computed(function, {leaves(1, x)}).output("loss").get()[0]);
  EXPECT_EQ(layer.square().type().width, 3);
  const LazyExpr zero = graph.input({-2, 0});
  const int line = __LINE__ + 1;
  const LazyExpr root = windrow::sqrt(zero), loss = windrow::row_sum(root);
  graph.backward(std::array{loss});
  expect_error<OpError>([&] { loss.scalar(); }, "vertex_function_test.cc:" + std::to_string(line));
}

}  // namespace
}  // namespace windrow::testing
