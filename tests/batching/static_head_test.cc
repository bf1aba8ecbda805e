// A recorded block of operators above a vertex function: its backward pass is replayed between the two halves of the
// minibatch's.
#include <random>
#include <vector>

#include "tests/batching/cells.h"
#include "tests/batching/oracle.h"
#include "tests/engine/support.h"
#include "windrow/batching/runner.h"
#include "windrow/ops/static.h"
#include "windrow/ops/tape.h"

namespace windrow {
namespace {

constexpr Index state_width = 4;

/// A sum over the children of a squashed state; each vertex has a loss, the square of a squashed product.
struct TreesWithAHead {
  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, 3};
  Parameter w = parameters.add("w", 2, state_width, Initial::uniform(-1, 1));
  Parameter u = parameters.add("u", state_width, state_width, Initial::uniform(-1, 1));
  Parameter out = parameters.add("out", state_width, 1, Initial::uniform(-1, 1));

  Expr state(Vertex& v) const {
    const auto h = v.state("h", state_width);
    const Expr own = tanh(matmul(v.pull("x", 2), w) + matmul(sum_children(v.each(h)), u));
    v.scatter(h, own);
    return own;
  }
  VertexFunction whole{
      "whole", {.arity = any_arity}, [this](Vertex& v) { v.loss(square(tanh(matmul(state(v), out)))); }};
  VertexFunction below{"below", {.arity = any_arity}, [this](Vertex& v) { v.push("h", state(v)); }};
  Runner at_once{host, whole, parameters}, lower{host, below, parameters};
  /// Returns the loss, and its gradients for the states and for `out`.
  Static head{host, [this](const StaticInputs& call) -> std::vector<Tensor> {
                const Tensor &h = call.in.front(), &weight = parameters.value(out);
                Tape tape(host);
                tape.watch(h);
                tape.watch(weight);
                const Tensor y = tape.apply(op::tanh, {.in = {tape.apply(op::matmul, {.in = {h, weight}})}});
                const Tensor loss = tape.apply(op::column_sum, {.in = {tape.apply(op::square, {.in = {y}})}});
                tape.backward(loss);
                return {loss, tape.gradient(h).value(), tape.gradient(weight).value()};
              }};

  std::vector<std::vector<double>> gradients() const {
    std::vector<std::vector<double>> all;
    for (std::size_t p = 0; p < parameters.size(); ++p) all.push_back(testing::dense(parameters, parameters[p]));
    return all;
  }
};

TEST(StaticHead, IsReplayedWithinDynamicMinibatches) {
  TreesWithAHead s;
  std::mt19937 random(1);
  for (int minibatch = 0; minibatch < 6; ++minibatch) {
    SCOPED_TRACE(minibatch);
    std::vector<GraphData> data;  // other graphs each time, of 9 or 12 vertices
    for (std::int32_t vertices : {5, 0, minibatch % 2 == 0 ? 4 : 7}) {
      data.push_back(testing::random_graph(vertices, any_arity, testing::Form::dag, random));
    }
    const testing::Graphs graphs(s.whole, data), same(s.below, data);
    const double expected = s.at_once.differentiate(graphs.pointers).loss();
    const auto gradients = s.gradients();

    const Minibatch recorded = s.lower.record(same.pointers, {}, {"h"});
    const std::vector<Tensor> results = s.head({.in = {recorded.output("h")}});
    EXPECT_NEAR(results[0].get().at(0), expected, 1e-5);
    s.lower.backward(recorded, {{"h", results[1]}});
    s.parameters.add_gradient(s.out, results[2]);
    const auto found = s.gradients();
    for (std::size_t p = 0; p < gradients.size(); ++p) {
      for (std::size_t i = 0; i < gradients[p].size(); ++i) EXPECT_NEAR(found[p][i], gradients[p][i], 1e-5);
    }
  }
  EXPECT_EQ(s.head.stats().recorded, 2u);  // a recording for each number of vertices
  EXPECT_EQ(s.head.stats().replayed, 4u);
}

}  // namespace
}  // namespace windrow
