// Functions of several kinds, and of any arity: what they refuse, and what they cost.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/batching/cells.h"
#include "tests/engine/support.h"

namespace windrow {
namespace {

using testing::error_of;
using testing::Graphs;

/// Two states and no input; or an input of that width.
VertexFunction maker(const std::string& state, Index width = 2) {
  return VertexFunction("make " + state, {.arity = 1}, [=](Vertex& v) {
    const Expr x = v.pull("x", width);
    v.scatter(v.state(state, width), x);
    v.push(state + " out", x);
  });
}
VertexFunction taker(const std::string& state, Index width = 2) {
  return VertexFunction("take " + state, {.arity = 2}, [=](Vertex& v) {
    v.push("taken", v.gather(0, v.state(state, width)) + v.gather(1, v.state(state + "2", width)));
  });
}

std::string said_of(const std::vector<VertexFunction>& kinds) {
  return error_of<MisuseError>([&] { VertexFunction("all", kinds); });
}

TEST(Kinds, RefuseWhatDoesNotFitTogether) {
  EXPECT_EQ(said_of({}), "all: is put together of no functions; expected one or more");
  EXPECT_EQ(said_of({maker("h"), VertexFunction("both", {maker("a"), maker("b")})}),
            "all: 'both' is of several kinds itself; expected one");
  EXPECT_EQ(said_of({maker("h", 2), maker("h", 3)}),
            "all: state 'h' is vertices x 2 in one kind and vertices x 3 in another; expected one of a kind");
  EXPECT_EQ(said_of({maker("g", 2), maker("h", 3)}),
            "all: input 'x' is vertices x 2 in one kind and vertices x 3 in another; expected one of a kind");
  const auto looker = [](Presence presence) {
    return VertexFunction("look", {}, [&](Vertex& v) { v.pull_index("i", presence); });
  };
  EXPECT_EQ(said_of({looker(Presence::always), looker(Presence::sometimes)}),
            "all: input 'i' is vertices x 1 in one kind and vertices x 1, of some vertices, in another; "
            "expected one of a kind");
}

class KindsOfGraphs : public ::testing::Test {
 protected:
  std::string said_of(const GraphData& graph) const {
    return error_of<MisuseError>([&] { InputGraph(function, graph, "g"); });
  }
  GraphData data{.child_begin = {0, 0, 1, 3}, .children = {0, 0, 1}, .kinds = {0, 1, 2}};
  const VertexFunction function{"all", {maker("h"), maker("h2"), taker("h")}};

  KindsOfGraphs() { data.values["x"].assign(6, 1); }
};

TEST_F(KindsOfGraphs, AreNumbersOfFunctions) {
  data.kinds = {0, 1};
  EXPECT_EQ(said_of(data), "g: has kinds of 2 vertices; expected 3, or none");
  data.kinds = {0, 3, 2};
  EXPECT_EQ(said_of(data), "g: vertex 1 is of kind 3; expected 0 to 2");
}

TEST_F(KindsOfGraphs, ScatterWhatIsGatheredFromThem) {
  InputGraph(function, data);
  data.children = {0, 1, 0};
  EXPECT_EQ(said_of(data),
            "g: vertex 2, child 0: take h gathers 'h', which vertex 1, computed by make h2, does not scatter");
  data.children = {0, no_child, no_child};
  InputGraph(function, data);
}

TEST_F(KindsOfGraphs, NeedTheInputsOfTheirKindsAlone) {
  data.values.clear();
  EXPECT_EQ(said_of(data), "g: has no input 'x', which all pulls");
  InputGraph(function, {.child_begin = {0, 0}, .kinds = {2}});
}

TEST(Kinds, AreZeroWhereAKindDoesNotPush) {
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const VertexFunction function("all", {maker("h"), maker("h2"), taker("h")});
  GraphData data{.child_begin = {0, 0, 0, 2}, .children = {0, 1}, .kinds = {0, 1, 2}};
  data.values["x"] = {1, 2, 3, 4, 100, 100};
  const Graphs graphs(function, {data});
  Runner runner(host, function, parameters);
  const Minibatch minibatch = runner.run(graphs.pointers);
  EXPECT_EQ(minibatch.output("taken").get(), (std::vector<float>{0, 0, 0, 0, 4, 6}));
  EXPECT_EQ(minibatch.output("h out").get(), (std::vector<float>{1, 2, 0, 0, 0, 0}));
}

/// Neither copies of their parameters are made, nor gradients.
TEST(Kinds, KeepConstantsApartThatDifferInTheSignOfZero) {
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const VertexFunction function("zeros", {.arity = 0}, [](Vertex& v) {
    const Expr x = v.pull("x", 1);
    v.push("quotient", 0.0 / x);
    v.push("negative quotient", -0.0 / x);
    v.push("constant", v.constant(1, 0.0));
    v.push("negative constant", v.constant(1, -0.0));
  });
  GraphData data{.child_begin = {0, 0}};
  data.values["x"] = {2};
  const InputGraph graph(function, data);
  const InputGraph* const graphs[] = {&graph};
  Runner runner(host, function, parameters);
  Minibatch minibatch = runner.run(graphs);
  for (const std::string name : {"quotient", "constant"}) {
    EXPECT_FALSE(std::signbit(minibatch.output(name).get()[0])) << name;
    EXPECT_TRUE(std::signbit(minibatch.output("negative " + name).get()[0])) << name;
  }
}

TEST(Kinds, CostNothingWhereTheyAreNot) {
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const auto kind = [&](const std::string& name) {
    const Parameter w = parameters.add_product(name, 2, 2);
    return VertexFunction(name, {.arity = 1}, [=](Vertex& v) {
      const State h = v.state("h", 2);
      const Expr own = tanh(matmul(v.gather(0, h) + v.pull("x", 2), w));
      v.scatter(h, own);
      v.push("h", own);
    });
  };
  const VertexFunction one = kind("one"), both("both", {one, kind("other")}), alone("alone", {one});
  const Tensor ones(host, 3, 2);
  ones.set({1, 1, 1, 1, 1, 1});
  const auto ops_of = [&](Runner& runner, const VertexFunction& function, std::int32_t number) {
    GraphData chain{.child_begin = {0, 1, 2, 3}, .children = {no_child, 0, 1}, .kinds = {number, number, number}};
    chain.values["x"] = {1, 2, 3, 4, 5, 6};
    const Graphs graphs(function, {chain});
    const std::int64_t before = runner.stats().ops;
    const Minibatch minibatch = runner.record(graphs.pointers, {}, {"h"});
    runner.backward(minibatch, {{"h", ones}}, Runner::Gradients::add);
    minibatch.loss();
    return runner.stats().ops - before;
  };
  Runner of_both(host, both, parameters), of_one(host, alone, parameters);
  ops_of(of_both, both, 0);
  ops_of(of_both, both, 1);
  EXPECT_EQ(ops_of(of_both, both, 0), ops_of(of_one, alone, 0));
}

std::string said_of_body(std::size_t arity, const std::function<void(Vertex&)>& body) {
  return error_of<MisuseError>([&] { VertexFunction("cell", {.arity = arity}, body); });
}

TEST(AnyArity, IsAskedForAndThenLookedAtAllAtOnce) {
  EXPECT_EQ(said_of_body(any_arity, [](Vertex& v) { v.gather(0, v.state("h", 2)); }),
            "cell: gather(0) of state 'h' in a function of any arity; expected each");
  EXPECT_EQ(said_of_body(2, [](Vertex& v) { v.each(v.state("h", 2)); }),
            "cell: each of state 'h' in a function of arity 2; expected one of any_arity, or a gather by child");
  EXPECT_EQ(said_of_body(2, [](Vertex& v) { v.pull_edge("x", 2); }),
            "cell: edge input 'x' in a function of arity 2; expected one of any_arity, or a gather by child");
  EXPECT_EQ(said_of_body(any_arity, [](Vertex& v) { sum_children(v.pull("x", 2)); }),
            "cell: a reduction over children of vertices x 2; expected a value of edges");
  EXPECT_EQ(said_of_body(any_arity, [](Vertex& v) { v.push("x", v.pull_edge("x", 2)); }),
            "cell: 'x' is of edges; expected a value of the vertex");
  EXPECT_EQ(said_of_body(2, [](Vertex& v) { to_children(v.pull("x", 2)); }),
            "cell: to_children in a function of arity 2; expected one of any_arity, or a gather by child");
}

/// A star: the sum of `leaves` ones.
TEST(AnyArity, TakesAsManyChildrenAsThereAre) {
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const VertexFunction function("sum", {.arity = any_arity}, [](Vertex& v) {
    const State total = v.state("total", 1);
    const Expr own = v.pull("x", 1) + sum_children(v.each(total));
    v.scatter(total, own);
    v.push("total", own);
  });
  constexpr std::int32_t leaves = 100'000;
  GraphData data;
  data.child_begin.assign(leaves + 1, 0);
  data.child_begin.push_back(leaves);
  for (std::int32_t leaf = 0; leaf < leaves; ++leaf) data.children.push_back(leaf);
  data.values["x"].assign(leaves, 1);
  data.values["x"].push_back(0.5f);
  const Graphs graphs(function, {data});
  Runner runner(host, function, parameters);
  EXPECT_EQ(runner.run(graphs.pointers).output("total").get().back(), leaves + 0.5f);
  EXPECT_EQ(runner.stats().batches, 2);  // the leaves, and the root
}

}  // namespace
}  // namespace windrow
