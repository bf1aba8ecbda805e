// How minibatches run: what they wait for, overlap with, cost, and how they fail.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <optional>

#include "tests/batching/cells.h"
#include "tests/engine/support.h"
#include "windrow/ops/apply.h"

namespace windrow {
namespace {

using testing::error_of;
using testing::Form;
using testing::Gate;
using testing::Graphs;
using testing::random_graph;
using testing::random_graphs;
using testing::TreeLstm;

/// A Tree-LSTM with what it needs.
struct Trainer {
  explicit Trainer(EngineOptions options = {}, RunnerOptions runner_options = {})
      : engine(options), runner(host, function, parameters, runner_options) {}

  Engine engine;
  Device host = host_device(engine);
  Parameters parameters{host, 3};
  TreeLstm cell{parameters};
  VertexFunction function{"tree_lstm", {.arity = 2}, [this](Vertex& v) { cell(v); }};
  Runner runner;
};

std::vector<GraphData> many_trees(unsigned seed, std::size_t count) {
  std::mt19937 random(seed);
  std::vector<GraphData> data;
  for (std::size_t i = 0; i < count; ++i) {
    data.push_back(random_graph(1 + static_cast<std::int32_t>(random() % 30), 2, Form::trees, random));
  }
  return data;
}

/// All parameters after some steps of training.
std::vector<std::vector<float>> trained(EngineOptions options) {
  Trainer s(options, {.groups = 4, .group_vertices = 40});
  for (unsigned step = 0; step < 5; ++step) {
    const Graphs graphs(s.function, many_trees(step, 20));
    s.runner.differentiate(graphs.pointers);
    s.parameters.sgd(0.01, 0.001);
  }
  std::vector<std::vector<float>> values;
  for (std::size_t p = 0; p < s.parameters.size(); ++p) {
    values.push_back(s.parameters.value(s.parameters[p]).get());
  }
  return values;
}

class TrainingWith : public testing::EveryPolicy {};

TEST_P(TrainingWith, GivesTheSameBits) { EXPECT_EQ(trained(options()), trained({.policy = Policy::serial})); }
WINDROW_EVERY_POLICY(TrainingWith);

TEST(Training, LowersTheLoss) {
  Trainer s;
  std::vector<GraphData> data = many_trees(1, 30);
  for (GraphData& graph : data) {  // what can be learned: the word's class, or how many children there are
    auto& label = graph.indices["label"];
    for (std::size_t v = 0; v < label.size(); ++v) {
      const std::int32_t word = graph.indices["word"][v];
      label[v] = word >= 0 ? word % TreeLstm::classes : graph.child_begin[v + 1] - graph.child_begin[v];
    }
  }
  const Graphs graphs(s.function, data);
  const double before = s.runner.run(graphs.pointers).loss();
  for (int step = 0; step < 100; ++step) {
    s.runner.differentiate(graphs.pointers);
    s.parameters.sgd(0.005);
  }
  EXPECT_LT(s.runner.run(graphs.pointers).loss(), 0.5 * before);
}

TEST(Training, DescendsAlongGradients) {
  Trainer s;
  const Graphs graphs(s.function, many_trees(1, 10));
  s.runner.differentiate(graphs.pointers);
  for (std::size_t i = 0; i < s.parameters.size(); ++i) {
    const Parameter p = s.parameters[i];
    const std::vector<float> before = s.parameters.value(p).get();
    const std::vector<double> gradient = testing::dense(s.parameters, p);
    const bool table = p.type() == s.cell.words.type();
    EXPECT_EQ(table, !s.parameters.gradient(p).all.has_value()) << "a lookup leaves rows";
    s.parameters.sgd(0.25, 0.5);
    const std::vector<float> after = s.parameters.value(p).get();
    for (std::size_t k = 0; k < before.size(); ++k) {
      const double decay = table ? 0 : 0.5;
      const double expected = before[k] - 0.25 * (gradient[k] + decay * static_cast<double>(before[k]));
      ASSERT_NEAR(after[k], expected, 1e-5 * (1 + std::abs(gradient[k]))) << s.parameters.name(p) << " " << k;
    }
    s.runner.differentiate(graphs.pointers);
  }
}

TEST(Training, TakesNewTypesOfVerticesAsTheyCome) {
  Trainer s;
  GraphData leaf;
  leaf.child_begin = {0, 0};
  leaf.indices = {{"word", {1}}, {"label", {2}}};
  const Graphs first(s.function, {leaf});
  const double alone = s.runner.differentiate(first.pointers).loss();
  const Graphs second(s.function, many_trees(4, 10));
  s.runner.differentiate(second.pointers).loss();
  EXPECT_EQ(s.runner.differentiate(first.pointers).loss(), alone);
}

TEST(Training, OfNothingCostsNothing) {
  Trainer s;
  EXPECT_EQ(s.runner.differentiate({}).loss(), 0);
  const Graphs empty(s.function, {random_graph(0, 2, Form::trees, *std::make_unique<std::mt19937>())});
  const Minibatch minibatch = s.runner.differentiate(empty.pointers);
  EXPECT_EQ(minibatch.loss(), 0);
  EXPECT_EQ(minibatch.vertices(), 0);
  s.parameters.sgd(1);
  s.engine.wait_all();
}

// --- What it costs

/// Trees whose leaves alone have words, whose inner vertices have two children.
GraphData full_tree(std::int32_t leaves) {
  GraphData data;
  data.child_begin = {0};
  for (std::int32_t v = 0; v < 2 * leaves - 1; ++v) {
    if (v >= leaves) data.children.insert(data.children.end(), {2 * (v - leaves), 2 * (v - leaves) + 1});
    data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
    data.indices["word"].push_back(v < leaves ? v % TreeLstm::vocabulary : -1);
    data.indices["label"].push_back(v % TreeLstm::classes);
  }
  return data;
}

TEST(Specialisation, LeavesDoNoProductOfStates) {
  Trainer s;
  const Graphs graphs(s.function, {full_tree(50), full_tree(7)});
  s.runner.run(graphs.pointers).loss();
  constexpr Index h = TreeLstm::h, e = TreeLstm::e, head = 2 * h * TreeLstm::classes;
  const Index forward = 57 * (6 * h * e) + 55 * 16 * h * h + 112 * head;
  EXPECT_EQ(s.runner.stats().multiply_flops, forward);
  s.runner.differentiate(graphs.pointers).loss();
  EXPECT_EQ(s.runner.stats().multiply_flops, forward + 3 * forward);
}

TEST(Specialisation, ReachesIntoProductsOfSeveralPartsOfARow) {
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  constexpr Index e = 3, h = 4;
  const Parameter table = parameters.add("table", 7, e, Initial::normal(0, 1));
  const Parameter all = parameters.add("all", e + 2 * h, h, Initial::normal(0, 1));
  const VertexFunction function("cell", {.arity = 2}, [&](Vertex& v) {
    const State s = v.state("s", h);
    const Expr word = embedding(table, v.pull_index("word", Presence::sometimes));
    v.scatter(s, tanh(matmul(concat(word, v.gather(0, s), v.gather(1, s)), all)));
  });
  const Graphs graphs(function, {full_tree(50)});
  Runner runner(host, function, parameters);
  runner.run(graphs.pointers).loss();
  EXPECT_EQ(runner.stats().multiply_flops, 50 * 2 * e * h + 49 * 2 * (2 * h) * h);
}

TEST(Specialisation, ComputesAllLeavesAtOnceAndEachLevelInAFewBatches) {
  Trainer s(EngineOptions{}, {.groups = 1});
  const Graphs graphs(s.function, {full_tree(64), full_tree(64), full_tree(64)});
  s.runner.run(graphs.pointers).loss();
  const RunnerStats stats = s.runner.stats();
  EXPECT_EQ(stats.vertices, 3 * 127);
  EXPECT_LE(stats.batches, 5 + 6 * 2 + 5) << "eager segments, two for each of six levels, lazy ones\n"
                                          << s.runner.describe();
}

TEST(Training, WaitsForNothingWithinAMinibatch) {
  Trainer s({.workers = 2}, {.ahead = 3});
  const Graphs graphs(s.function, many_trees(1, 30));
  for (int step = 0; step < 3; ++step) {
    s.runner.differentiate(graphs.pointers);
    s.parameters.sgd(0.01);
  }
  EXPECT_EQ(s.engine.stats().waits, 0u);
  EXPECT_EQ(s.engine.stats().waits_in_ops, 0u);
  s.engine.wait_all();
}

// --- Who runs beside whom

/// An operator whose kernel does what the test at hand wants, and copies.
std::function<void()>* during_copy = nullptr;

Type same(const Operator&, const Signature& signature) { return signature.in[0]; }
GradientTerms passed(const Signature&) { return {GradientTerm{nullptr, {Ref::gradient()}}}; }
constexpr Operator watched{.name = "watched", .infer = same, .gradients = passed, .locality = Locality::rowwise};
constexpr Operator no_gradient{.name = "no_gradient", .infer = same, .locality = Locality::rowwise};

void watched_copy(const KernelCall<float>& call) {
  if (during_copy != nullptr) (*during_copy)();
  for (Index r = 0; r < call.out.rows; ++r) std::copy_n(call.in[0].row(r), call.out.width, call.out.row(r));
}

/// Sums real inputs of children and its own, by way of `watched`.
class Watched : public ::testing::Test {
 protected:
  void SetUp() override { during_copy = &during_; }
  void TearDown() override { during_copy = nullptr; }

  Device host_of(Engine& engine) {
    Device host = host_device(engine);
    host.kernels.add(watched, watched_copy);
    return host;
  }
  VertexFunction function_of(const Parameter& w) {
    return VertexFunction("watched_sum", {.arity = 2}, [&](Vertex& v) {
      const State s = v.state("s", 2);
      const Expr x = apply(watched, {v.pull("x", 2)});
      v.scatter(s, x + v.gather(0, s) + v.gather(1, s));
      v.loss(matmul(x, w));
    });
  }

  std::function<void()> during_ = [] {};
};

TEST_F(Watched, GroupsOfOneMinibatchOverlap) {
  Engine engine({.policy = Policy::pool, .workers = 2});
  const Device host = host_of(engine);
  Parameters parameters(host, 1);
  const VertexFunction function = function_of(parameters.add("w", 2, 1, Initial::constant(1)));
  Runner runner(host, function, parameters, {.groups = 2, .group_vertices = 1});
  const Graphs graphs(function, many_trees(2, 12));
  std::atomic<int> arrived{0};
  Gate both;
  std::atomic<bool> alone{false};
  during_ = [&] {  // the first two come from the two groups, and each waits for the other
    if (++arrived == 2) both.open();
    if (!both.pass()) alone = true;
  };
  runner.differentiate(graphs.pointers).loss();
  EXPECT_FALSE(alone);
}

TEST_F(Watched, TheNextMinibatchIsScheduledWhileOneRuns) {
  Engine engine({.policy = Policy::pool, .workers = 1});
  const Device host = host_of(engine);
  Parameters parameters(host, 1);
  const VertexFunction function = function_of(parameters.add("w", 2, 1, Initial::constant(1)));
  Runner runner(host, function, parameters, {.ahead = 2});
  const Graphs graphs(function, many_trees(2, 12));
  Gate gate;
  during_ = [&] { gate.pass(); };
  const Minibatch first = runner.differentiate(graphs.pointers);
  parameters.sgd(0.1);
  const Minibatch second = runner.differentiate(graphs.pointers);  // returns although the first stands at the gate
  EXPECT_EQ(engine.stats().waits, 0u);
  gate.open();
  runner.differentiate(graphs.pointers);  // would be one too many, so it waits for the first
  EXPECT_EQ(engine.stats().waits, 1u);
  EXPECT_NE(first.loss(), second.loss());
}

// --- How it fails

TEST(Failure, OfAnOpPoisonsTheMinibatchAndWhatIsMadeOfIt) {
  Trainer s;
  std::vector<GraphData> data = many_trees(1, 3);
  data[1].indices["word"][0] = TreeLstm::vocabulary;
  const Graphs bad(s.function, data);
  const Minibatch minibatch = s.runner.differentiate(bad.pointers);
  s.parameters.sgd(0.1);
  const std::string said = error_of<OpError>([&] { minibatch.loss(); });
  EXPECT_NE(said.find("minibatch 0 of tree_lstm: embedding: index 7 at row "), std::string::npos) << said;
  EXPECT_THROW(s.parameters.value(s.cell.head).get(), OpError);
  s.runner.differentiate(bad.pointers);
  EXPECT_THROW(s.runner.differentiate(bad.pointers), OpError) << "waits for the first, and tells";
}

TEST(Failure, NamesMinibatchAndOperatorOfALossThatIsNotFinite) {
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const Parameter w = parameters.add("w", 2, 1, Initial::constant(1));
  const VertexFunction function("growing", {}, [&](Vertex& v) { v.loss(square(exp(matmul(v.pull("x", 2), w)))); });
  Runner runner(host, function, parameters);
  GraphData data;
  data.child_begin = {0, 0, 0};
  data.values["x"] = {1, 2, 3, 4};
  const Graphs good(function, {data});
  data.values["x"] = {1, 2, 300, 4};
  const Graphs bad(function, {data});
  runner.differentiate(good.pointers);
  parameters.sgd(0);
  const Minibatch minibatch = runner.differentiate(bad.pointers);
  parameters.sgd(0.1);
  const std::string said = error_of<OpError>([&] { minibatch.loss(); });
  EXPECT_NE(said.find("minibatch 1 of growing: the loss is inf, expected a finite number; the first such value is of "
                      "'exp' at vertex 1 of the minibatch"),
            std::string::npos)
      << said;
  engine.heal(parameters.value(w).var());
  EXPECT_EQ(parameters.value(w).get(), (std::vector<float>{1, 1})) << "nothing was written";
  parameters.value(w).set({std::numeric_limits<float>::quiet_NaN(), 1});
  EXPECT_NE(error_of<OpError>([&] { runner.run(good.pointers).loss(); }).find("parameter 0 is not finite"),
            std::string::npos);
}

TEST_F(Watched, MisuseIsNamedAtTheCall) {
  Engine engine;
  const Device host = host_of(engine);
  Parameters parameters(host, 1), other(host, 1);
  const Parameter w = parameters.add("w", 2, 1, Initial::constant(1));
  const VertexFunction function = function_of(w), again = function_of(w);
  EXPECT_EQ(error_of<MisuseError>([&] { Runner(host, function, other); }),
            "watched_sum uses other parameters than its runner; expected the same");
  EXPECT_EQ(error_of<MisuseError>([&] { Runner(host, function, parameters, {.ahead = 0}); }),
            "RunnerOptions: ahead is 0; expected 1 or more");
  EXPECT_EQ(error_of<MisuseError>([&] { Runner(host, function, parameters, {.batch_rows = 0}); }),
            "RunnerOptions: batch_rows is 0; expected 1 or more");
  Runner runner(host, function, parameters);
  const Graphs graphs(again, many_trees(1, 1));
  EXPECT_EQ(error_of<MisuseError>([&] { runner.run(graphs.pointers); }),
            "watched_sum: a graph of another vertex function; expected graphs made for this one");
  EXPECT_EQ(error_of<MisuseError>([&] { runner.run({}).output("x"); }),
            "watched_sum: there is no output 'x'; expected one that the function pushes");
  EXPECT_EQ(error_of<MisuseError>([&] { parameters.add("w", 1, 1, Initial::zeros()); }),
            "parameter 'w' is added twice; expected once");
  EXPECT_EQ(error_of<MisuseError>([&] { parameters.find("v"); }), "there is no parameter 'v'");
  EXPECT_EQ(error_of<MisuseError>([&] { other.value(w); }), "a parameter of another set");

  const VertexFunction lossless("lossless", {}, [&](Vertex& v) { v.push("y", matmul(v.pull("x", 2), w)); });
  EXPECT_EQ(error_of<MisuseError>([&] { Runner(host, lossless, parameters).differentiate({}); }),
            "lossless: has no loss; expected one to differentiate");
  const VertexFunction rough("rough", {.arity = 2},
                             [&](Vertex& v) { v.loss(apply(no_gradient, {matmul(v.pull("x", 2), w)})); });
  Device device = host_device(engine);
  const Graphs one(rough, many_trees(1, 1));
  EXPECT_NE(error_of<MisuseError>([&] { Runner(device, rough, parameters).run(one.pointers); }).find("no_gradient"),
            std::string::npos)
      << "no kernel";
  device.kernels.add(no_gradient, watched_copy);
  EXPECT_EQ(error_of<MisuseError>([&] { Runner(device, rough, parameters).differentiate(one.pointers); }),
            "rough: no_gradient has no gradient; expected an operator that has one");
}

TEST(Training, OfAChainOfAMillionVerticesEnds) {
  constexpr std::int32_t length = 1'000'000;
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const Parameter w = parameters.add("w", 1, 1, Initial::constant(1));
  const VertexFunction function("count", {.arity = 1}, [&](Vertex& v) {
    const State s = v.state("s", 1);
    const Expr one = matmul(v.pull("x", 1), w);
    v.scatter(s, v.gather(0, s) + one);
    v.loss(one);
  });
  GraphData data;
  for (std::int32_t v = 0; v < length; ++v) {
    data.children.push_back(v - 1);  // the first has none
    data.child_begin.push_back(v + 1);
  }
  data.values["x"].assign(length, 1);
  const Graphs graphs(function, {data});
  Runner runner(host, function, parameters);
  EXPECT_EQ(runner.differentiate(graphs.pointers).loss(), length);
  EXPECT_EQ(parameters.gradient(w).all->get(), std::vector<float>{length});
}

}  // namespace
}  // namespace windrow
