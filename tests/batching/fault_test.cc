// What devices and minibatches ask of the host's memory, counted; and lazy graphs where memory runs out: a call that
// throws leaves behind what was there.
#include "tests/batching/support.h"
#include "tests/engine/faults.h"

namespace windrow::testing {
namespace {

using faults::asked;

void no_kernel(const KernelCall<float>&) {}

TEST(Devices, AreCopiedWithoutAnAllocation) {
  Engine engine;
  Device host = host_device(engine);
  const auto before = asked().calls;
  const Device copy = host;
  EXPECT_EQ(asked().calls, before);
  host.kernels.add(op::add, no_kernel);
  EXPECT_EQ(host.kernels.find(op::add), no_kernel);
  EXPECT_NE(copy.kernels.find(op::add), no_kernel) << "a copy is a value of its own";
  EXPECT_EQ(host.kernels.find(op::sub), copy.kernels.find(op::sub));
}

/// Of a graph of many vertices with this input.
std::int64_t bytes_stored_with(float input) {
  const VertexFunction function("inputs", {.arity = 1}, [](Vertex& v) {
    const State state = v.state("state", 1);
    const Expr x = v.gather(0, state) + v.pull("x", 1);
    v.scatter(state, x);
    v.push("x", x);
  });
  InputGraph graph(function, leaves(1000, Floats(1000, input)));
  InputGraph* const one = &graph;
  const auto before = asked().bytes;
  InputGraph::store_together({&one, 1});
  return asked().bytes - before;
}

TEST(InputGraphs, TakeHalfTheMemoryIfAllNumbersFit16Bits) {
  const std::int64_t narrow = bytes_stored_with(0), wide = bytes_stored_with(1.5f);
  EXPECT_GE(wide, 3 * 1000 * 4) << "the end of its children, its number, and the bits of the input";
  EXPECT_LT(narrow, 0.55 * static_cast<double>(wide));
}

/// Of that many kinds with a state each, of which the minibatch at hand has one.
std::int64_t bytes_of_a_minibatch(std::int32_t kinds) {
  OnHost s({.policy = Policy::serial});
  std::vector<VertexFunction> functions;
  for (std::int32_t k = 0; k < kinds; ++k) {
    const std::string number = std::to_string(k);
    functions.emplace_back("kind" + number, VertexFunction::Shape{.arity = 1}, [&](Vertex& v) {
      const State state = v.state("state" + number, 1);
      const Expr x = v.gather(0, state) + v.pull("x", 1);
      v.scatter(state, tanh(x));
      v.push("x", x);
    });
  }
  const VertexFunction function("all", functions);
  Runner runner(s.host, function, s.parameters);
  GraphData all;
  for (std::int32_t k = 0; k < kinds; ++k) {
    for (const std::int32_t child : {no_child, 2 * k}) {
      all.children.push_back(child);
      all.child_begin.push_back(all.child_begin.back() + 1);
      all.kinds.push_back(k);
      all.values["x"].push_back(1);
    }
  }
  GraphData one = graph_of({{no_child}, {0}}, {1, 1});
  one.kinds = {0, 0};
  const InputGraph first(function, all), second(function, one);
  runner.run(std::array{&first}).loss();
  const auto before = asked().bytes;
  runner.run(std::array{&second}).loss();
  return asked().bytes - before;
}

TEST(Minibatches, TakeMemoryByTheTypesAndNotByTypesTimesStates) {
  const auto few = bytes_of_a_minibatch(20), more = bytes_of_a_minibatch(40), many = bytes_of_a_minibatch(80);
  EXPECT_LT(many - more, 5 * (more - few) / 2) << few << ", " << more << ", " << many;
}

/// Not every allocation fails where a sanitizer watches.
constexpr std::uint64_t stride = sanitized ? 5 : 1;

struct Model : OnHost {
  Model() : OnHost({.workers = 1}) {}
  Parameter twice = parameters.add("twice", 1, 1, Initial::constant(2));
  Parameter words = parameters.add("words", 2, 1, Initial::constant(3));

  /// Doubles often; or adds a word as often.
  void double_often(LazyGraph& graph, std::vector<LazyExpr>& values) const {
    values.push_back(graph.input({1}));
    for (int i = 0; i < 6; ++i) values.push_back(matmul(values.back() + embedding(words, graph.index(0)), twice));
  }
  void add_often(LazyGraph& graph, std::vector<LazyExpr>& values) const {
    values.push_back(graph.input({1}));
    for (int i = 0; i < 6; ++i) values.push_back(embedding(words, graph.index(1)) + values.back());
  }
};

/// The model's values, as far as they were written.
void check(const std::vector<LazyExpr>& values, float factor) {
  float expected = 1;
  for (const LazyExpr& value : values) {
    ASSERT_EQ(value.scalar(), expected);
    expected = (expected + 3) * factor;
  }
}

TEST(LazyFaults, LeaveAGraphThatGoesOn) {
  Model model;
  bool struck = true;
  for (std::uint64_t at = 1; struck; at += stride) {
    SCOPED_TRACE(at);
    LazyGraph graph(model.host, model.parameters);
    std::vector<LazyExpr> first, second;
    first.reserve(10);
    {
      const faults::Armed armed({.at = at, .where = faults::Where::this_thread});
      try {
        model.double_often(graph, first);
        graph.flush();
      } catch (const std::bad_alloc&) {
      }
      struck = faults::struck();
    }
    model.add_often(graph, second);
    check(second, 1);
    check(first, 2);
    if (HasFatalFailure()) return;
  }
}

/// Half-way through gradients nothing goes on but a new minibatch.
TEST(LazyFaults, LeaveAGraphThatCanBeCleared) {
  Model model;
  const auto differentiate = [&](LazyGraph& graph) {
    std::vector<LazyExpr> values;
    values.reserve(10);
    model.double_often(graph, values);
    values[3].value();
    graph.backward(std::span(values).last(1));
  };
  bool struck = true;
  for (std::uint64_t at = 1; struck; at += stride) {
    SCOPED_TRACE(at);
    LazyGraph graph(model.host, model.parameters);
    {
      const faults::Armed armed({.at = at, .where = faults::Where::this_thread});
      try {
        differentiate(graph);
      } catch (const std::bad_alloc&) {
      }
      struck = faults::struck();
    }
    graph.clear();
    differentiate(graph);
    // Of x -> w (x + 3), six times from 1 on, by w, which is 2.
    EXPECT_EQ(model.parameters.gradient(model.twice).all->get(), std::vector<float>{1155});
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace windrow::testing
