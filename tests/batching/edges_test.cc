// Children that are gathered by number beside edges, and edges to several children.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/batching/cells.h"
#include "tests/engine/support.h"

namespace windrow {
namespace {

using testing::error_of;
using testing::Graphs;

/// Steps that gather the step before them and sum over words by weights that both determine.
struct Decoder {
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters{host, 1};
  const VertexFunction function{
      "decoder",
      {VertexFunction("word", {}, [](Vertex& v) { v.scatter(v.state("word", 2), v.pull("x", 2)); }),
       VertexFunction("step", {.arity = any_arity, .fixed = 1}, [](Vertex& v) {
         const State word = v.state("word", 2), step = v.state("step", 2);
         const Expr before = v.gather(0, step), words = v.each(word);
         const Expr weights = exp(row_dot(words, to_children(before)));
         const Expr read = sum_children(words * weights) / sum_children(weights);
         v.scatter(step, read);
         v.push("read", read);
       })}};
};

TEST(FixedChildren, AreGatheredByNumberBesideEdgesToOthers) {
  Decoder s;
  Runner runner(s.host, s.function, s.parameters);
  // Words 0, 1, 2; step 3 has no step before it; step 4 follows step 3 and reads two words; step 5 reads none.
  const GraphData data{.child_begin = {0, 0, 0, 0, 4, 7, 8},
                       .children = {no_child, 0, 1, 2, 3, 2, 0, 4},
                       .kinds = {0, 0, 0, 1, 1, 1},
                       .values = {{"x", {1, 2, 3, -4, -1, 0.5f, 0, 0, 0, 0, 0, 0}}}};
  const Graphs graphs(s.function, {data});
  const std::vector<float> read = runner.run(graphs.pointers).output("read").get();
  const float first[] = {1, -0.5f};  // the mean of three words
  const float of_last = std::exp(-first[0] + 0.5f * first[1]), of_first = std::exp(first[0] + 2 * first[1]);
  EXPECT_FLOAT_EQ(read[6], first[0]);
  EXPECT_FLOAT_EQ(read[7], first[1]);
  EXPECT_FLOAT_EQ(read[8], (-of_last + of_first) / (of_last + of_first));
  EXPECT_FLOAT_EQ(read[9], (0.5f * of_last + 2 * of_first) / (of_last + of_first));
}

/// The logarithm of the number of binary trees over n words (the Catalan numbers), by the inside algorithm of a grammar
/// of one symbol: a vertex for each span, an edge for each place to split it.
TEST(EdgesToPairs, SumOverTheSplitsOfASpan) {
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const VertexFunction function("span", {.arity = any_arity, .per_edge = 2}, [](Vertex& v) {
    const State inside = v.state("inside", 1);
    const Expr trees = sum_children(exp(v.each(inside) + v.each(inside, 1)));
    v.scatter(inside, log(trees + v.pull("word", 1)));
    v.push("trees", trees);
  });
  constexpr std::int32_t n = 8;
  const auto span = [](std::int32_t begin, std::int32_t length) {  // numbered by length, then begin
    return (length - 1) * n - (length - 1) * (length - 2) / 2 + begin;
  };
  GraphData data;
  for (std::int32_t length = 1; length <= n; ++length) {
    for (std::int32_t begin = 0; begin + length <= n; ++begin) {
      for (std::int32_t split = 1; split < length; ++split) {
        data.children.insert(data.children.end(), {span(begin, split), span(begin + split, length - split)});
      }
      data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
      data.values["word"].push_back(length == 1 ? 1.0f : 0.0f);
    }
  }
  const Graphs graphs(function, {data});
  Runner runner(host, function, parameters);
  EXPECT_EQ(graphs.graphs[0].vertices(), n * (n + 1) / 2);
  EXPECT_NEAR(runner.run(graphs.pointers).output("trees").get().back(), 429, 0.01);
}

TEST(FixedChildren, AndEdgesAreRefusedWhereTheyDoNotFit) {
  const auto traced = [](VertexFunction::Shape shape, const std::function<void(Vertex&, const State&)>& use) {
    return error_of<MisuseError>([&] { VertexFunction("f", shape, [&](Vertex& v) { use(v, v.state("s", 1)); }); });
  };
  const auto nothing = [](Vertex&, const State&) {};
  EXPECT_EQ(traced({.arity = 2, .fixed = 1}, nothing),
            "f: `fixed` or `per_edge` with a fixed arity; expected any_arity");
  EXPECT_EQ(traced({.arity = any_arity, .per_edge = 0}, nothing), "f: edges to 0 children; expected 1 or more");
  EXPECT_EQ(traced({.arity = any_arity, .fixed = 30, .per_edge = 2}, nothing),
            "f: arity and optional indices are 32 together; expected 31 at most");
  EXPECT_EQ(traced({.arity = any_arity, .fixed = 1}, [](Vertex& v, const State& s) { v.gather(1, s); }),
            "f: gather(1) of state 's'; expected less than 1, the number of fixed children");
  EXPECT_EQ(traced({.arity = any_arity}, [](Vertex& v, const State& s) { v.gather(0, s); }),
            "f: gather(0) of state 's' in a function of any arity; expected each");
  EXPECT_EQ(traced({.arity = any_arity, .per_edge = 2}, [](Vertex& v, const State& s) { v.each(s, 2); }),
            "f: each of state 's', child 2 of an edge; expected less than 2, the children of an edge");

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

  Decoder s;  // a word has no step
  EXPECT_EQ(error_of<MisuseError>([&] {
              InputGraph(s.function,
                         {.child_begin = {0, 0, 1}, .children = {0}, .kinds = {0, 1}, .values = {{"x", {1, 2, 3, 4}}}},
                         "g");
            }),
            "g: vertex 1, child 0: step gathers 'step', which vertex 0, computed by word, does not scatter");
}

}  // namespace
}  // namespace windrow
