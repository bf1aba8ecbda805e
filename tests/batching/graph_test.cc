#include "windrow/batching/graph.h"

#include "tests/batching/cells.h"

namespace windrow::testing {
namespace {

VertexFunction pair_function() {
  return VertexFunction("pair", {.arity = 2}, [](Vertex& v) {
    const State s = v.state("s", 1);
    v.scatter(s, v.gather(0, s) + v.gather(1, s) + v.pull("x", 1));
  });
}

/// Vertices with these children, which pull ones.
GraphData ones(const std::vector<Ints>& children) { return graph_of(children, Floats(children.size(), 1)); }

std::string said_of(GraphData data) {
  return error_of<MisuseError>([&] { InputGraph(pair_function(), std::move(data), "train.txt:7"); });
}

TEST(InputGraph, FindsTheLevelsOfAllVerticesOfRandomGraphs) {
  std::mt19937 random(7);
  for (int i = 0; i < 20; ++i) {
    // Children may follow their consumers.
    const std::int32_t vertices = 1 + static_cast<std::int32_t>(random() % 60);
    std::vector<Ints> children(static_cast<std::size_t>(vertices));
    Ints order(children.size()), level(children.size(), 0);
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[random() % k]);
    for (std::size_t k = 1; k < order.size(); ++k) {
      const auto v = static_cast<std::size_t>(order[k]);
      for (std::size_t c = random() % 3; c > 0; --c) {
        const std::int32_t child = order[random() % k];
        children[v].push_back(child);
        level[v] = std::max(level[v], level[static_cast<std::size_t>(child)] + 1);
      }
    }
    const InputGraph graph(pair_function(), ones(children));
    for (std::int32_t v = 0; v < vertices; ++v) {
      EXPECT_EQ(graph.level(v), level[static_cast<std::size_t>(v)]) << "vertex " << v << " of graph " << i;
    }
  }
}

TEST(InputGraph, GivesItsStructureBack) {
  // Children may follow their consumers, and be missing before others.
  const GraphData data = graph_of({{3, no_child, 1}, {}, {no_child, 0}, {}}, Floats(4, 1));
  const VertexFunction function("three", {.arity = 3}, [](Vertex& v) {
    const State s = v.state("s", 1);
    v.scatter(s, v.gather(0, s) + v.gather(1, s) + v.gather(2, s) + v.pull("x", 1));
  });
  const GraphData same = InputGraph(function, data).structure();
  EXPECT_EQ(same.child_begin, data.child_begin);
  EXPECT_EQ(same.children, data.children);
  EXPECT_EQ(same.kinds, Ints(4, 0));
}

/// The numbers of a graph are kept in 16 bits if all are from -1 to 65534.
TEST(InputGraph, KeepsIndicesOfAnySize) {
  constexpr Index rows = 65'540;
  OnHost s;
  const Parameter table = s.parameters.add("table", rows, 1, Initial::uniform(-1, 1));
  const VertexFunction function("look up", {.arity = 1}, [&](Vertex& v) {
    const State sum = v.state("sum", 1);
    const Expr all = embedding(table, v.pull_index("word", Presence::sometimes)) + v.gather(0, sum);
    v.scatter(sum, all);
    v.push("sum", all);
  });
  // With and without a number that needs more bits.
  const std::vector<Ints> words = {
      {65'534, 0, -1}, {-1, 65'534, 1, 32'767}, {65'535, -1, 3}, {65'539, 2, 32'768, 65'534}};
  std::vector<InputGraph> graphs;
  for (const auto& of_graph : words) {
    GraphData data = chain_of(static_cast<std::int32_t>(of_graph.size()));
    data.indices["word"] = of_graph;
    graphs.push_back(InputGraph(function, data, "graph " + std::to_string(graphs.size())));
  }
  const std::vector<float> values = s.parameters.value(table).get();
  std::vector<float> expected;
  for (const auto& of_graph : words) {
    float sum = 0;
    for (const std::int32_t word : of_graph) {
      sum += word < 0 ? 0 : values[static_cast<std::size_t>(word)];
      expected.push_back(sum);
    }
  }
  std::vector<InputGraph*> pointers;
  for (InputGraph& graph : graphs) pointers.push_back(&graph);
  for (const char* how : {"apart", "together", "together again"}) {
    if (how != std::string("apart")) InputGraph::store_together(pointers);
    for (std::size_t g = 0; g < graphs.size(); ++g) EXPECT_EQ(graphs[g].index("word"), words[g]) << how;
    const std::vector<const InputGraph*> minibatch(pointers.begin(), pointers.end());
    EXPECT_EQ(Runner(s.host, function, s.parameters).run(minibatch).output("sum").get(), expected) << how;
    for (const InputGraph& graph : graphs) EXPECT_EQ(graph.level(2), 2) << how;
  }
  InputGraph::store_together({});
}

/// An empty graph has no rows that could be missing.
TEST(InputGraph, OfNoVerticesNeedsNoInputs) {
  OnHost on;
  const Parameter table = on.parameters.add("words", 3, 1, Initial::constant(2));
  const VertexFunction function("sums", {.arity = any_arity}, [&](Vertex& v) {
    const State s = v.state("s", 1);
    const auto sum =
        embedding(table, v.pull_index("word")) + v.pull("x", 1) + sum_children(v.each(s) * v.pull_edge("weight", 1));
    v.scatter(s, sum);
    v.push("sum", sum);
  });
  Runner runner(on.host, function, on.parameters);
  GraphData data = ones({{}, {0}});
  data.indices["word"] = {1, 2};
  data.edge_values["weight"] = {3};
  const InputGraph none(function, GraphData{}), some(function, data);
  EXPECT_EQ(none.vertices(), 0);
  EXPECT_EQ(none.levels(), 0);
  EXPECT_TRUE(none.index("word").empty());
  EXPECT_EQ(runner.run(std::vector{&none}).vertices(), 0);
  EXPECT_EQ(runner.run(std::vector{&none, &some, &none}).output("sum").get(), (std::vector<float>{3, 12}));
  GraphData extra;
  extra.values["x"] = {1};
  EXPECT_EQ(said_of(extra), "train.txt:7: input 'x' has 1 elements; expected 0 x 1");
}

TEST(InputGraph, MayBeEmptyAndMayLackChildren) {
  EXPECT_EQ(InputGraph(pair_function(), ones({})).levels(), 0);
  const InputGraph graph(pair_function(), ones({{no_child, 1}, {no_child, no_child}}));
  EXPECT_EQ(graph.levels(), 2);
  EXPECT_EQ(graph.edges(), 1);
}

TEST(InputGraph, NamesAVertexWhoseChildrenDoNotFit) {
  EXPECT_EQ(said_of(ones({{1}, {2}, {1, 3}, {}})),
            "train.txt:7: vertex 2 is its own descendant; expected a graph without cycles");
  EXPECT_EQ(said_of(ones({{0}})), "train.txt:7: vertex 0 is its own descendant; expected a graph without cycles");
  EXPECT_EQ(said_of(ones({{1}, {0, 5}})),
            "train.txt:7: vertex 1, child 1: there is no vertex 5; expected 0 to 1, or -1 for none");
  EXPECT_EQ(said_of(ones({{-2}})),
            "train.txt:7: vertex 0, child 0: there is no vertex -2; expected 0 to 0, or -1 for none");
  EXPECT_EQ(said_of(ones({{}, {}, {}, {0, 1, 2}})),
            "train.txt:7: vertex 3 has 3 children; expected at most 2, the arity of pair");
}

TEST(InputGraph, NamesOffsetsAndInputsThatDoNotFit) {
  GraphData data = ones({{}, {0}});
  data.child_begin = {0, 1, 0};
  EXPECT_EQ(
      said_of(data),
      "train.txt:7: child_begin does not span the 1 children; expected the first to be 0 and the last their number");
  data.child_begin = {0, 1, 0, 1};
  EXPECT_EQ(said_of(data), "train.txt:7: vertex 1: its children end before they begin; expected child_begin to ascend");
  data.child_begin = {0, 2, 1};
  EXPECT_EQ(said_of(data), "train.txt:7: vertex 0: its children end behind the last; expected child_begin to ascend");
  data.child_begin = {};
  EXPECT_NE(said_of(data), "");
  data = ones({{}, {0}});
  data.values["x"].pop_back();
  EXPECT_EQ(said_of(data), "train.txt:7: input 'x' has 1 elements; expected 2 x 1");
  data.values.clear();
  EXPECT_EQ(said_of(data), "train.txt:7: has no input 'x', which pair pulls");
  data.values["xs"] = {};
  EXPECT_EQ(said_of(data), "train.txt:7: has no input 'x', which pair pulls; given are 'xs'");
}

/// A vertex on top of another one, of a function with two indices and one of edges.
InputGraph indexed_graph(Ints labels, Ints choices, std::int32_t side) {
  const VertexFunction function("labelled", {.arity = any_arity}, [](Vertex& v) {
    const Expr x = v.pull("x", 3);
    v.loss(softmax_cross_entropy(x, v.pull_index("label")) + pick(x, v.pull_index("choice", Presence::sometimes)));
    const State s = v.state("s", 2);
    v.scatter(s, sum_children(mul_columns(v.each(s), pick(v.each(s), v.pull_edge_index("side")))));
  });
  GraphData data = ones({{}, {0}});
  data.values["x"] = {1, 2, 3, 4, 5, 6};
  data.indices = {{"label", std::move(labels)}, {"choice", std::move(choices)}};
  data.edge_indices["side"] = {side};
  return {function, data, "train.txt:7"};
}

TEST(InputGraph, GivesIndicesOfVerticesBack) {
  const InputGraph graph = indexed_graph({2, 0}, {-1, 1}, 1);
  EXPECT_EQ(graph.index("label"), (Ints{2, 0}));
  EXPECT_EQ(graph.index("choice"), (Ints{-1, 1}));
  for (const char* name : {"side", "x", "tag"}) {
    EXPECT_EQ(error_of<MisuseError>([&] { graph.index(name); }),
              "train.txt:7: no index '" + std::string(name) +
                  "'; expected one of vertices that the function pulls and the data have");
  }
}

TEST(InputGraph, NamesAnIndexThatNoOperatorAccepts) {
  const auto said = [](Ints labels, Ints choices, std::int32_t side) {
    return error_of<MisuseError>([&] { indexed_graph(std::move(labels), std::move(choices), side); });
  };
  EXPECT_EQ(said({-1, 3}, {0, 0}, 0), "train.txt:7: vertex 1: 'label' is 3; expected -1 to 2");
  EXPECT_EQ(said({-2, 0}, {0, 0}, 0), "train.txt:7: vertex 0: 'label' is -2; expected -1 to 2");
  EXPECT_EQ(said({0, 0}, {-1, 5}, 0), "train.txt:7: vertex 1: 'choice' is 5; expected -1 to 2");
  EXPECT_EQ(said({0, 0}, {-1, 2}, 2), "train.txt:7: vertex 1: 'side' is 2; expected -1 to 1");
}

TEST(StructureKey, DependsOnChildrenAndKindsAlone) {
  std::mt19937 random(1);
  std::map<std::uint64_t, std::tuple<Ints, Ints, Ints>> seen;
  for (int i = 0; i < 2000; ++i) {
    GraphData tree = random_graph(static_cast<std::int32_t>(random() % 6), 2, Form::trees, random);
    if (i % 2 == 0) tree.kinds.assign(tree.child_begin.size() - 1, static_cast<std::int32_t>(random() % 2));
    const std::uint64_t key = structure_key(tree);
    const auto all = std::tuple(tree.child_begin, tree.children, tree.kinds);
    EXPECT_EQ(seen.emplace(key, all).first->second, all);
    tree.indices["word"] = {i};
    EXPECT_EQ(structure_key(tree), key);
  }
  std::set<decltype(seen)::mapped_type> structures;
  for (const auto& [key, all] : seen) structures.insert(all);
  EXPECT_EQ(structures.size(), seen.size());
  EXPECT_NE(structure_key({.child_begin = {0, 0}}), structure_key({.child_begin = {0, 0, 0}}));
}

TEST(TypedGraphs, AreMinibatchesWhoseTypesAreNumberedAlike) {
  const VertexFunction function = pair_function();
  const InputGraph leaf(function, ones({{}})), chain(function, ones({{}, {0}})), tree(function, ones({{}, {}, {0, 1}}));
  const InputGraph* const graphs[] = {&leaf, &chain, &tree};
  const std::vector<TypedGraph> minibatches = typed_graphs(graphs, 2);
  ASSERT_EQ(minibatches.size(), 2u);
  for (const TypedGraph& minibatch : minibatches) EXPECT_EQ(minibatch.types, 3);
  EXPECT_EQ(minibatches[0].type, (Ints{0, 0, 1}));
  EXPECT_EQ(minibatches[0].children, (Ints{1}));
  EXPECT_EQ(minibatches[1].type, (Ints{0, 0, 2}));
  EXPECT_EQ(minibatches[1].child_begin, (Ints{0, 0, 0, 2}));
  EXPECT_EQ(error_of<MisuseError>([] { typed_graphs({}, 0); }),
            "typed_graphs: minibatches of 0 graphs; expected at least 1");
}

TEST(ShuffledMinibatches, HaveEachGraphOnceAndTheSameOrderForASeed) {
  const VertexFunction function = pair_function();
  std::vector<InputGraph> graphs;
  for (int i = 0; i < 10; ++i) graphs.emplace_back(function, ones({{}}));
  const auto shuffled = [&](std::span<const InputGraph> of, std::size_t size, unsigned seed) {
    std::mt19937_64 random(seed);
    std::vector<std::vector<std::ptrdiff_t>> numbers;
    for (const auto& minibatch : shuffled_minibatches(of, size, random)) {
      numbers.emplace_back();
      for (const InputGraph* graph : minibatch) numbers.back().push_back(graph - of.data());
    }
    return numbers;
  };
  using Numbers = std::vector<std::vector<std::ptrdiff_t>>;
  const Numbers once = shuffled(graphs, 4, 7);
  EXPECT_EQ(once, (Numbers{{0, 7, 4, 9}, {3, 1, 2, 8}, {6, 5}}));
  EXPECT_EQ(shuffled(graphs, 4, 7), once);
  EXPECT_NE(shuffled(graphs, 4, 8), once);
  std::set<std::ptrdiff_t> all;
  for (const auto& minibatch : once) all.insert(minibatch.begin(), minibatch.end());
  EXPECT_EQ(all.size(), 10u);
  EXPECT_EQ(shuffled(std::span(graphs).first(3), 5, 7).size(), 1u);
  EXPECT_TRUE(shuffled({}, 4, 7).empty());
  EXPECT_EQ(error_of<MisuseError>([&] { shuffled(graphs, 0, 7); }), "minibatches of 0 graphs; expected at least 1");
  const auto in_order = minibatches(graphs, 8);
  ASSERT_EQ(in_order.size(), 2u);
  EXPECT_EQ(in_order[1], (std::vector<const InputGraph*>{&graphs[8], &graphs[9]}));
}

TEST(GroupedMinibatches, AreDividedAsTheRunnerDividesThem) {
  OnHost on;
  const Parameter w = on.parameters.add_product("w", 2, 2);
  const VertexFunction function("pair", {.arity = 2}, [&](Vertex& v) {
    const State s = v.state("s", 2);
    const auto x = v.pull("x", 2), own = tanh(x + matmul(v.gather(0, s) + v.gather(1, s), w));
    v.scatter(s, own);
    v.loss(squared_distance(own, x));
  });
  const InputGraph tree(function, graph_of({{}, {}, {0, 1}}, Floats(6, 0.5f))),
      chain(function, graph_of({{}, {0}}, Floats(4, 0.5f)));
  const std::vector<const InputGraph*> graphs = {&tree, &tree, &chain, &tree};
  for (const int groups : {1, 2}) {
    Runner runner(on.host, function, on.parameters, {.groups = groups, .group_flops = 1});
    const GroupedMinibatch grouped = runner.grouped(graphs);
    EXPECT_EQ(grouped.types, (std::vector<std::string>{"pair, no children", "pair, 1 child (0)", "pair, 2 children"}));
    ASSERT_EQ(grouped.groups.size(), static_cast<std::size_t>(groups));
    std::int64_t batches = 0;
    for (const TypedGraph& group : grouped.groups) {
      EXPECT_GT(group.costs[2], group.costs[0]) << "products of two children";
      batches += static_cast<std::int64_t>(make_schedule(group, SchedulePolicy::level).batches.size());
    }
    EXPECT_EQ(grouped.groups.front().vertices(), groups == 1 ? 11 : 6);
    EXPECT_EQ(batches, groups == 1 ? 3 : 5);
    EXPECT_EQ(runner.stats().minibatches, 0);
  }
}

}  // namespace
}  // namespace windrow::testing
