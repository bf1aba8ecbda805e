// Functions of several kinds, and of any arity: what they refuse, and what they cost.
#include "tests/batching/cells.h"

namespace windrow::testing {
namespace {

class SeveralKinds : public ::testing::Test, protected OnHost {};
class AnyArity : public ::testing::Test, protected OnHost {};

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

TEST_F(SeveralKinds, RefuseWhatDoesNotFitTogether) {
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

TEST_F(KindsOfGraphs, AreNumbersOfFunctionsWhoseInputsTheyNeed) {
  data.kinds = {0, 1};
  EXPECT_EQ(said_of(data), "g: has kinds of 2 vertices; expected 3, or none");
  data.kinds = {0, 3, 2};
  EXPECT_EQ(said_of(data), "g: vertex 1 is of kind 3; expected 0 to 2");
  data.kinds = {0, 1, 2};
  data.values.clear();
  EXPECT_EQ(said_of(data), "g: has no input 'x', which all pulls");
  InputGraph(function, {.child_begin = {0, 0}, .kinds = {2}});
}

TEST_F(KindsOfGraphs, AreNamedInErrorsWhereNobodyGaveThem) {
  data.kinds.clear();
  EXPECT_EQ(said_of(data),
            "g: vertex 2 has 2 children; expected at most 1, the arity of make h (kind 0 of 3; GraphData::kinds is "
            "empty)");
  data = {.child_begin = {0, 0}};
  EXPECT_EQ(said_of(data), "g: has no input 'x', which all pulls (kind 0 of 3; GraphData::kinds is empty)");
  const VertexFunction leaf = maker("h");
  EXPECT_EQ(error_of<MisuseError>([&] { InputGraph(leaf, data, "g"); }), "g: has no input 'x', which make h pulls")
      << "a function of one kind needs no kinds";
}

TEST_F(KindsOfGraphs, ScatterWhatIsGatheredFromThem) {
  InputGraph(function, data);
  data.children = {0, 1, 0};
  EXPECT_EQ(said_of(data),
            "g: vertex 2, child 0: take h gathers 'h', which vertex 1, computed by make h2, does not scatter");
  data.children = {0, no_child, no_child};
  InputGraph(function, data);
}

/// Neither copies of their parameters are made, nor gradients.
TEST_F(SeveralKinds, KeepConstantsApartThatDifferInTheSignOfZero) {
  const VertexFunction function("zeros", {.arity = 0}, [](Vertex& v) {
    const Expr x = v.pull("x", 1);
    v.push("quotient", 0.0 / x);
    v.push("negative quotient", -0.0 / x);
    v.push("constant", v.constant(1, 0.0));
    v.push("negative constant", v.constant(1, -0.0));
  });
  const Minibatch minibatch = computed(function, {leaves(1, {2})});
  for (const std::string name : {"quotient", "constant"}) {
    EXPECT_FALSE(std::signbit(minibatch.output(name).get()[0])) << name;
    EXPECT_TRUE(std::signbit(minibatch.output("negative " + name).get()[0])) << name;
  }
}

TEST_F(SeveralKinds, CostNothingWhereTheyAreNot) {
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
  const Tensor ones = tensor(Floats(6, 1), 2);
  const auto ops_of = [&](Runner& runner, const VertexFunction& function, std::int32_t number) {
    GraphData chain = chain_of(3, {1, 2, 3, 4, 5, 6});
    chain.kinds.assign(3, number);
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

std::string said_of_body(const VertexFunction::Shape& shape, const std::function<void(Vertex&)>& body) {
  return error_of<MisuseError>([&] { VertexFunction("cell", shape, body); });
}

TEST_F(AnyArity, IsAskedForAndThenLookedAtAllAtOnce) {
  EXPECT_EQ(said_of_body({.arity = any_arity}, [](Vertex& v) { v.gather(0, v.state("h", 2)); }),
            "cell: gather(0) of state 'h' in a function of any arity; expected each");
  EXPECT_EQ(said_of_body({.arity = 2}, [](Vertex& v) { v.each(v.state("h", 2)); }),
            "cell: each of state 'h' in a function of arity 2; expected one of any_arity, or a gather by child");
  EXPECT_EQ(said_of_body({.arity = 2}, [](Vertex& v) { v.pull_edge("x", 2); }),
            "cell: edge input 'x' in a function of arity 2; expected one of any_arity, or a gather by child");
  using Reduce = Expr (*)(const Expr&);
  for (const auto& [name, reduce] :
       std::map<std::string, Reduce>{{"sum_children", windrow::sum_children},
                                     {"mean_children", windrow::mean_children},
                                     {"softmax_children", windrow::softmax_children},
                                     {"log_sum_exp_children", windrow::log_sum_exp_children},
                                     {"max_children", windrow::max_children}}) {
    EXPECT_EQ(said_of_body({.arity = any_arity}, [reduce](Vertex& v) { reduce(v.pull("x", 2)); }),
              "cell: " + name + ": operand vertices x 2; expected a value of edges, such as Vertex::each()");
  }
  EXPECT_EQ(said_of_body({.arity = any_arity}, [](Vertex& v) { v.push("x", v.pull_edge("x", 2)); }),
            "cell: 'x' is of edges; expected a value of the vertex");
  EXPECT_EQ(said_of_body({.arity = 2}, [](Vertex& v) { to_children(v.pull("x", 2)); }),
            "cell: to_children in a function of arity 2; expected one of any_arity, or a gather by child");
  EXPECT_EQ(said_of_body({.arity = any_arity}, [](Vertex& v) { k_max_children(v.pull_edge("x", 2), 0); }),
            "k_max_children: k 0; expected 1 or more");
}

/// Children that are gathered by number beside edges, and edges to several children.
TEST_F(AnyArity, HasFixedChildrenAndEdgesThatFit) {
  const auto nothing = [](Vertex&) {};
  EXPECT_EQ(said_of_body({.arity = 2, .fixed = 1}, nothing),
            "cell: `fixed` or `per_edge` with a fixed arity; expected any_arity");
  EXPECT_EQ(said_of_body({.arity = any_arity, .per_edge = 0}, nothing),
            "cell: edges to 0 children; expected 1 or more");
  EXPECT_EQ(said_of_body({.arity = any_arity, .fixed = 30, .per_edge = 2}, nothing),
            "cell: arity and optional indices are 32 together; expected 31 at most");
  EXPECT_EQ(said_of_body({.arity = any_arity, .fixed = 1}, [](Vertex& v) { v.gather(1, v.state("s", 1)); }),
            "cell: gather(1) of state 's'; expected less than 1, the number of fixed children");
  EXPECT_EQ(said_of_body({.arity = any_arity, .per_edge = 2}, [](Vertex& v) { v.each(v.state("s", 1), 2); }),
            "cell: each of state 's', child 2 of an edge; expected less than 2, the children of an edge");

  const VertexFunction pairs("pairs", {.arity = any_arity, .fixed = 1, .per_edge = 2}, [](Vertex& v) {
    const State s = v.state("s", 1);
    v.scatter(s, v.gather(0, s) + sum_children(v.each(s) * v.each(s, 1)));
  });
  const auto loaded = [&](std::vector<std::int32_t> children) {
    const auto end = static_cast<std::int32_t>(children.size());
    return error_of<MisuseError>([&] {
      InputGraph(pairs, {.child_begin = {0, 0, end}, .children = std::move(children)}, "g");
    });
  };
  EXPECT_EQ(loaded({0, 0}), "g: vertex 1: 1 children of edges; expected a multiple of 2");
  EXPECT_EQ(loaded({no_child, 0, no_child}), "g: vertex 1: an edge to 1 children; expected 2, or only -1");
  const GraphData whole{.child_begin = {0, 1, 6}, .children = {no_child, 0, no_child, no_child, 0, 0}};
  EXPECT_EQ(InputGraph(pairs, whole).edges(), 3);
}

/// A star: the sum of many ones.
TEST_F(AnyArity, TakesAsManyChildrenAsThereAre) {
  const VertexFunction function("sum", {.arity = any_arity}, [](Vertex& v) {
    const State total = v.state("total", 1);
    const Expr own = v.pull("x", 1) + sum_children(v.each(total));
    v.scatter(total, own);
    v.push("total", own);
  });
  constexpr std::int32_t ones = 100'000;
  std::vector<Ints> children(ones + 1);
  for (std::int32_t leaf = 0; leaf < ones; ++leaf) children.back().push_back(leaf);
  Floats x(ones, 1);
  x.push_back(0.5f);
  const GraphData data = graph_of(children, x);
  const Graphs graphs(function, {data});
  Runner runner(host, function, parameters);
  EXPECT_EQ(runner.run(graphs.pointers).output("total").get().back(), ones + 0.5f);
  EXPECT_EQ(runner.stats().batches, 2);  // the leaves, and the root
}

}  // namespace
}  // namespace windrow::testing
