// Lazy expressions: against vertex functions, against a direct evaluation, over several epochs, and what they refuse.
#include "windrow/batching/lazy.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/batching/cells.h"
#include "tests/engine/support.h"
#include "tests/ops/cases.h"

namespace windrow {
namespace {

using testing::dense;
using testing::expect_close;
using testing::Form;
using testing::Graphs;
using testing::random_graph;
using testing::TreeLstm;

/// A Tree-LSTM as anybody would write it, vertex by vertex.
struct LazyTreeLstm {
  static constexpr Index h = TreeLstm::h;
  LazyGraph& graph;
  const Parameters& p;
  struct State {
    LazyExpr h, c;
  };

  State state_of(const GraphData& data, std::int32_t v, std::vector<LazyExpr>& losses) const {
    const auto begin = static_cast<std::size_t>(data.child_begin[static_cast<std::size_t>(v)]);
    const auto end = static_cast<std::size_t>(data.child_begin[static_cast<std::size_t>(v) + 1]);
    std::vector<State> children;
    for (std::size_t e = begin; e < begin + 2; ++e) {
      const bool none = e >= end || data.children[e] == no_child;
      const LazyExpr zero = graph.input({0, 0, 0, 0});
      children.push_back(none ? State{zero, zero} : state_of(data, data.children[e], losses));
    }
    const State &left = children[0], &right = children[1];
    LazyExpr gates = matmul(concat(left.h, right.h), p.find("inner")) + p.find("bias");
    const std::int32_t word = data.indices.at("word")[static_cast<std::size_t>(v)];
    if (word >= 0) gates = gates + matmul(embedding(p.find("words"), graph.index(word)), p.find("leaf"));
    const LazyExpr keep_left = sigmoid(affine(left.h, p.find("forget"), p.find("forget_bias")));
    const LazyExpr keep_right = sigmoid(affine(right.h, p.find("forget"), p.find("forget_bias")));
    const LazyExpr in = sigmoid(slice(gates, 0, h)), out = sigmoid(slice(gates, h, 2 * h));
    const LazyExpr c = in * tanh(slice(gates, 2 * h, 3 * h)) + keep_left * left.c + keep_right * right.c;
    const LazyExpr own = out * tanh(c);
    const LazyExpr logits = affine(own, p.find("head"), p.find("head_bias"));
    losses.push_back(softmax_cross_entropy(logits, graph.index(data.indices.at("label")[static_cast<std::size_t>(v)])));
    return {own, c};
  }
};

struct Trees {
  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, 1};
  TreeLstm cell{parameters};
  VertexFunction function = cell.function();
  std::vector<GraphData> data;

  explicit Trees(int count) {
    std::mt19937 random(7);
    for (int i = 0; i < count; ++i) {
      GraphData one = random_graph(1 + static_cast<std::int32_t>(random() % 12), 2, Form::trees, random);
      data.push_back(std::move(one));
    }
  }
  /// Vertices that no other has for a child.
  static std::vector<std::int32_t> roots(const GraphData& graph) {
    std::vector<char> has_consumer(graph.child_begin.size() - 1, 0);
    for (std::int32_t child : graph.children) {
      if (child != no_child) has_consumer[static_cast<std::size_t>(child)] = 1;
    }
    std::vector<std::int32_t> result;
    for (std::size_t v = 0; v < has_consumer.size(); ++v) {
      if (!has_consumer[v]) result.push_back(static_cast<std::int32_t>(v));
    }
    return result;
  }
  std::vector<LazyExpr> losses_of(LazyGraph& graph) const {
    const LazyTreeLstm model{graph, parameters};
    std::vector<LazyExpr> losses;
    for (const GraphData& one : data) {
      for (std::int32_t root : roots(one)) model.state_of(one, root, losses);
    }
    return losses;
  }
  std::vector<std::vector<double>> gradients() const {
    std::vector<std::vector<double>> all;
    for (std::size_t p = 0; p < parameters.size(); ++p) all.push_back(dense(parameters, parameters[p]));
    return all;
  }
};

double sum_of(const std::vector<LazyExpr>& losses) {
  double total = 0;
  for (const LazyExpr& loss : losses) total += loss.scalar();
  return total;
}

class LazyTrees : public ::testing::TestWithParam<SchedulePolicy> {};

TEST_P(LazyTrees, GiveWhatTheVertexFunctionGives) {
  Trees s(40);
  const Graphs graphs(s.function, s.data);
  Runner runner(s.host, s.function, s.parameters);
  const double expected = runner.differentiate(graphs.pointers).loss();
  const auto gradients = s.gradients();
  LazyGraph graph(s.host, s.parameters, {.runner = {.schedule = GetParam()}});
  for (int time = 0; time < 2; ++time) {
    const std::vector<LazyExpr> losses = s.losses_of(graph);
    graph.backward(losses);
    EXPECT_NEAR(sum_of(losses), expected, 1e-4 * expected);
    const auto found = s.gradients();
    for (std::size_t p = 0; p < gradients.size(); ++p) expect_close(found[p], gradients[p], 1e-4);
    graph.clear();
  }
}
INSTANTIATE_TEST_SUITE_P(All, LazyTrees,
                         ::testing::Values(SchedulePolicy::level, SchedulePolicy::depth, SchedulePolicy::agenda,
                                           SchedulePolicy::serial),
                         [](const auto& of) { return std::string(to_string(of.param)); });

/// Leaves and inner vertices are two kinds, as with vertex functions, wherever the program looks up its words.
TEST(LazyVertices, AreWhatIsWrittenTogether) {
  Engine engine;
  const Device host = host_device(engine);
  Parameters p(host, 1);
  const Parameter words = p.add("words", 10, 3, Initial::uniform(-1, 1)), w = p.add("w", 6, 3, Initial::glorot(6, 3));
  const Parameter b = p.add("b", 1, 3, Initial::zeros());
  LazyGraph graph(host, p);
  std::vector<LazyExpr> losses;
  const std::function<LazyExpr(int)> tree = [&](int depth) -> LazyExpr {
    if (depth == 0) return tanh(embedding(words, graph.index(3)) + b);
    const LazyExpr left = tree(depth - 1), right = tree(depth > 3 ? depth - 2 : depth - 1);
    const LazyExpr both = tanh(affine(concat(left, right), w, b));
    const LazyExpr own = both * embedding(words, graph.index(depth));  // cuts the run, and is put together again
    losses.push_back(row_sum(square(own)));
    return own;
  };
  for (int i = 0; i < 4; ++i) tree(6);
  graph.backward(losses);
  EXPECT_EQ(graph.stats().kinds, 2);
  EXPECT_EQ(graph.stats().flushes, 1);
  EXPECT_LT(graph.stats().vertices, graph.stats().expressions / 3);
}

class LazyFlushes : public ::testing::Test {
 protected:
  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, 1};
  LazyGraph graph{host, parameters};
};

TEST_F(LazyFlushes, NoteNoLossOfABackwardThatIsRefused) {
  const Parameter u = parameters.add("u", 1, 1, Initial::constant(1));
  const LazyExpr loss = matmul(graph.input({2}), u), wide = graph.input({1, 2});
  EXPECT_THROW(graph.backward(std::array{loss, wide}), MisuseError);
  graph.backward(std::array{loss});
  EXPECT_EQ(dense(parameters, u)[0], 2);
}

TEST_F(LazyFlushes, ComputeWhatNoHandleNames) {
  graph.input({1, 2});
  graph.flush();
  const LazyExpr x = row_sum(graph.input({1, 2}));
  graph.backward(std::array{x});
  EXPECT_EQ(x.scalar(), 3);
  EXPECT_EQ(graph.stats().flushes, 2);
}

TEST_F(LazyFlushes, LetNoLossThroughThatIsNotFinite) {
  const Parameter u = parameters.add("u", 1, 1, Initial::constant(1));
  const LazyExpr finite = matmul(graph.input({2}), u), infinite = matmul(log(graph.input({0})), u);
  graph.backward(std::array{finite, infinite});
  EXPECT_EQ(finite.scalar(), 2);
  parameters.sgd(0.1);
  const std::string error = testing::error_of<OpError>([&] { parameters.value(u).get(); });
  EXPECT_NE(error.find(" is -inf, expected a finite number; "), std::string::npos) << error;
}

TEST_F(LazyFlushes, HaveFiniteLossesOfLogitsOfAnySize) {
  const Parameter x = parameters.add("x", 1, 4, Initial::constant(0));
  parameters.value(x).set({-1e4, 1e4, 0, -20});
  const LazyExpr logits = graph.parameter(x);
  const LazyExpr losses = binary_cross_entropy(logits, graph.input({1, 0, 0.25, 0})) - log_sigmoid(logits);
  graph.backward(std::array{row_sum(losses)});
  const float log_2 = std::log(2.0f);
  const std::vector<float> values = losses.value();
  expect_close({values.begin(), values.end()}, {2e4, 1e4, 2 * log_2, 20}, 1e-6);
  expect_close(dense(parameters, x), {-2, 1, -0.25, -1}, 1e-6);
}

TEST_F(LazyFlushes, HaveParametersOfOneRowAsExpressions) {
  const Parameter first = parameters.add("first", 1, 2, Initial::constant(3));
  const Parameter table = parameters.add("table", 4, 2, Initial::constant(1));
  const LazyExpr x = graph.parameter(first), y = x * x + graph.input({1, 2});
  const LazyExpr part = graph.parameter(square(slice(LazyWeight(first), 1, 2)));
  graph.backward(std::array{row_sum(y), row_sum(x), part});
  EXPECT_EQ(y.value(), (std::vector<float>{10, 11}));
  EXPECT_EQ(part.value(), std::vector<float>{9});
  EXPECT_EQ(dense(parameters, first), (std::vector<double>{7, 13}));
  EXPECT_EQ(testing::error_of<MisuseError>([&] { graph.parameter(table); }),
            "a parameter of 4 rows as an expression; expected one of 1 row");
}

TEST_F(LazyFlushes, HaveGradientsOfInputsThatAreToBeKept) {
  const Parameter w = parameters.add("w", 2, 1, Initial::constant(2));
  for (const bool flushed : {false, true}) {
    const LazyExpr x = graph.input({1, 2}), other = graph.input({5, 6}), unused = graph.input({7});
    graph.keep_gradient(x);
    graph.keep_gradient(unused);
    const LazyExpr y = square(x);
    if (flushed) graph.flush();
    graph.backward(std::array{matmul(y, w), row_sum(x * other), 3 * row_sum(x)});
    EXPECT_EQ(graph.gradient(x), (std::vector<float>{2 * 2 * 1 + 5 + 3, 2 * 2 * 2 + 6 + 3}));
    EXPECT_EQ(graph.gradient(unused), std::vector<float>{0});
    EXPECT_EQ(testing::error_of<MisuseError>([&] { graph.gradient(other); }),
              "gradient: an expression that keep_gradient() does not name; expected one");
    EXPECT_EQ(testing::error_of<MisuseError>([&] { graph.keep_gradient(other); }),
              "keep_gradient: called after backward(); expected it before");
    graph.clear();
  }
  const LazyExpr x = graph.input({1}), y = square(x);
  EXPECT_EQ(testing::error_of<MisuseError>([&] { graph.keep_gradient(y); }),
            "keep_gradient: an expression that is not an input; expected an input");
  graph.flush();
  EXPECT_EQ(testing::error_of<MisuseError>([&] { graph.keep_gradient(x); }),
            "keep_gradient: an input that was computed; expected the call before its flush");
  EXPECT_EQ(testing::error_of<MisuseError>([&] { graph.gradient(x); }),
            "gradient: called before backward(); expected it after");
}

/// Behind the flush that throws it is learned which vertices are put together, so that they get other numbers.
TEST_F(LazyFlushes, KeepValuesBehindOneThatThrew) {
  const Parameter words = parameters.add("words", 1, 1, Initial::constant(1));
  std::vector<LazyExpr> items;
  const auto add = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const LazyExpr twice = 2.0 * graph.input({static_cast<float>(items.size())});
      items.push_back(twice * embedding(words, graph.index(0)));
    }
  };
  // The first flush fails, which is told as soon as it must be waited for.
  engine.push([] { throw Error("no words"); }, {mutate(parameters.value(words).var())});
  for (int time = 0; time < 2; ++time) {
    add(3);
    graph.flush();
    items.clear();
    engine.heal(parameters.value(words).var());
  }
  add(3);
  EXPECT_THROW(graph.flush(), OpError);
  add(1);
  for (std::size_t i = 0; i < items.size(); ++i) EXPECT_EQ(items[i].scalar(), 2 * static_cast<float>(i));
}

}  // namespace
}  // namespace windrow
