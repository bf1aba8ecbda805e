// Functions of expressions, called with their namespace from classes that have members of the same names.
#include <gtest/gtest.h>

#include "tests/batching/oracle.h"
#include "tests/engine/support.h"
#include "windrow/batching/lazy.h"
#include "windrow/batching/runner.h"
#include "windrow/batching/vertex_function.h"

namespace {

using windrow::Expr;
using windrow::LazyExpr;
using windrow::LazyWeight;
using windrow::Parameter;

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

struct Layer {
  Parameter w, b;

  auto tanh(const auto& x) const { return windrow::tanh(windrow::matmul(x, w) + b); }
  auto layer_norm(const auto& x) const { return windrow::layer_norm(x); }
  auto row_dot(const auto& x) const { return windrow::row_dot(x, windrow::scale_shift(x, 2, 1)); }
  LazyWeight square() const { return windrow::square(LazyWeight(w)); }
  auto loss(const auto& x) const { return row_dot(layer_norm(tanh(x))); }
};

/// Both kinds of expressions find their own function, and give one value.
TEST(QualifiedCall, FindsTheFunctionBesideAMemberOfItsName) {
  windrow::Engine engine({.workers = 1});
  const windrow::Device host = windrow::host_device(engine);
  windrow::Parameters parameters(host, 3);
  const Layer layer{parameters.add("w", 2, 3, windrow::Initial::uniform(-1, 1)),
                    parameters.add("b", 1, 3, windrow::Initial::uniform(-1, 1))};
  const std::vector<float> x = {0.5F, -2};

  const windrow::VertexFunction function("f", {},
                                         [&](windrow::Vertex& v) { v.push("loss", layer.loss(v.pull("x", 2))); });
  windrow::Runner runner(host, function, parameters);
  const windrow::InputGraph vertex(function, {.child_begin = {0, 0}, .values = {{"x", x}}});
  const float of_vertex = runner.run(std::vector{&vertex}).output("loss").get()[0];

  windrow::LazyGraph graph(host, parameters);
  const LazyExpr loss = layer.loss(graph.input(x));
  EXPECT_FLOAT_EQ(loss.scalar(), of_vertex);
  EXPECT_EQ(layer.square().type().width, 3);
}

/// The line of the call is told, as it is without the namespace.
TEST(QualifiedCall, TellsItsLine) {
  windrow::Engine engine({.workers = 1});
  const windrow::Device host = windrow::host_device(engine);
  windrow::Parameters parameters(host, 3);
  windrow::LazyGraph graph(host, parameters);
  const LazyExpr x = graph.input({-2, 0});
  const int line = __LINE__ + 1;
  const LazyExpr root = windrow::sqrt(x), loss = windrow::row_sum(root);
  graph.backward(std::array{loss});
  const std::string said = windrow::testing::error_of<windrow::OpError>([&] { loss.scalar(); });
  EXPECT_NE(said.find("qualified_call_test.cc:" + std::to_string(line)), std::string::npos) << said;
}

}  // namespace
