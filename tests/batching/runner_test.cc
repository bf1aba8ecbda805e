// How minibatches run: what they give, cost, wait for and overlap with.
#include "tests/batching/trainer.h"

namespace windrow::testing {
namespace {

class Specialisation : public ::testing::Test, protected OnHost {};
class Training : public ::testing::Test, protected OnHost {};

TEST_F(Training, OfNothingCostsNothing) {
  Trainer s;
  const Graphs empty(s.function, {leaves(0)});
  for (const auto& graphs : {std::vector<const InputGraph*>(), empty.pointers}) {
    const Minibatch minibatch = s.runner.differentiate(graphs);
    EXPECT_EQ(minibatch.loss(), 0);
    EXPECT_EQ(minibatch.vertices(), 0);
    s.parameters.sgd(1);
  }
  s.engine.wait_all();
}

// --- What it is given, and gives

class Samples : public ::testing::Test, protected OnHost {
 protected:
  /// The sum of "x" over a vertex and all below it, in two columns.
  const VertexFunction sums{"sums", {.arity = 2}, [](Vertex& v) {
                              const State s = v.state("s", 1);
                              const Expr own = v.pull("x", 1) + v.gather(0, s) + v.gather(1, s);
                              v.scatter(s, own);
                              v.push("sums", concat(own, -1.0f * own));
                            }};
  Runner runner{host, sums, parameters};
};

TEST_F(Samples, AreVectorsArraysOrSpansOfGraphsOrOfPointers) {
  const std::vector<InputGraph> graphs = {InputGraph(sums, chain_of(2, {1, 2})), InputGraph(sums, leaves(1, {3}))};
  const std::array<InputGraph, 1> array = {graphs[1]};
  const std::vector<const InputGraph*> pointers = {&graphs[1], &graphs[0]};
  const auto of = [&](const Minibatch& minibatch) { return minibatch.at_roots("sums").column_range(0, 1).get(); };
  EXPECT_EQ(of(runner.run(graphs)), (Floats{3, 3}));
  EXPECT_EQ(of(runner.run(std::span(graphs).last(1))), Floats{3});
  EXPECT_EQ(of(runner.run(array)), Floats{3});
  EXPECT_EQ(of(runner.run(pointers)), (Floats{3, 3}));
  EXPECT_EQ(of(runner.run(std::vector{&graphs[0]})), Floats{3});
  EXPECT_TRUE(of(runner.run({})).empty());
  EXPECT_EQ(error_of<MisuseError>([&] {
              runner.run(std::vector<const InputGraph*>{&graphs[0], nullptr});
            }),
            "sums: sample 1: no graph; expected graphs made for this one");
}

TEST_F(Samples, HaveOneOutputForEachRoot) {
  // Roots anywhere in their graphs, and several groups.
  std::vector<InputGraph> graphs;
  Floats expected;
  for (int i = 0; i < 20; ++i) {
    const auto x = static_cast<float>(i - 10);
    if (i % 3 == 0) graphs.emplace_back(sums, graph_of({{1, 2}, {}, {3}, {}}, {x, 1, 1, 1}));
    if (i % 3 == 1) graphs.emplace_back(sums, leaves(1, {x}));
    if (i % 3 == 2) graphs.emplace_back(sums, graph_of({{}, {0, 2}, {0}}, {1, x, 1}));  // vertex 0 counts twice
    expected.push_back(x + (i % 3 == 1 ? 0.0f : 3.0f));
  }
  for (const SchedulePolicy schedule : {SchedulePolicy::level, SchedulePolicy::agenda}) {
    Runner in_groups(host, sums, parameters, {.groups = 3, .group_flops = 1, .schedule = schedule});
    const Tensor roots = in_groups.run(graphs).at_roots("sums");
    EXPECT_EQ(roots.width(), 2);
    EXPECT_EQ(roots.column_range(0, 1).get(), expected);
    const std::vector<std::int32_t> labels = argmax(roots);
    for (std::size_t i = 0; i < labels.size(); ++i) EXPECT_EQ(labels[i], expected[i] < 0 ? 1 : 0) << i;
  }
}

TEST_F(Samples, WithoutOneRootAreRefusedByRootsAlone) {
  const std::vector<InputGraph> graphs = {InputGraph(sums, leaves(1, {1})),
                                          InputGraph(sums, graph_of({{}, {0}, {0}}, {1, 1, 1})),
                                          InputGraph(sums, leaves(0))};
  const auto said = [&](std::span<const InputGraph> of) {
    const Minibatch minibatch = runner.run(of);
    return error_of<MisuseError>([&] { minibatch.at_roots("sums"); });
  };
  EXPECT_EQ(said(graphs), "output 'sums': sample 1 has roots 1 and 2; expected one root");
  EXPECT_EQ(said(std::span(graphs).last(1)), "output 'sums': sample 0 has no vertex; expected one root");
  EXPECT_EQ(error_of<MisuseError>([&] { runner.run(std::span(graphs).first(1)).at_roots("logits"); }),
            "sums: there is no output 'logits'; expected one that the function pushes: 'sums'");
}

TEST_F(Samples, HaveTheFirstLargestColumnOrNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(argmax(tensor({1, 3, 3, infinite, nan, nan, -infinite, -infinite, -infinite}, 3)), (Ints{1, 1, 0}));
  EXPECT_TRUE(argmax(tensor({}, 3)).empty());
  EXPECT_EQ(error_of<MisuseError>([&] { argmax(Tensor(host, 2, 0)); }),
            "argmax of rows of width 0; expected at least 1");
}

// --- What it costs

/// Trees whose leaves alone have words, whose inner vertices have two children.
GraphData full_tree(std::int32_t words) {
  std::vector<Ints> children(static_cast<std::size_t>(2 * words - 1));
  for (std::int32_t v = words; v < 2 * words - 1; ++v) {
    children[static_cast<std::size_t>(v)] = {2 * (v - words), 2 * (v - words) + 1};
  }
  GraphData data = graph_of(children);
  for (std::int32_t v = 0; v < 2 * words - 1; ++v) {
    data.indices["word"].push_back(v < words ? v % TreeLstm::vocabulary : -1);
    data.indices["label"].push_back(v % TreeLstm::classes);
  }
  return data;
}

TEST_F(Specialisation, LeavesDoNoProductOfStates) {
  Trainer s;
  const Graphs graphs(s.function, {full_tree(50), full_tree(7)});
  s.runner.run(graphs.pointers).loss();
  constexpr Index h = TreeLstm::h, e = TreeLstm::e, head = 2 * h * TreeLstm::classes;
  const Index forward = 57 * (6 * h * e) + 55 * 16 * h * h + 112 * head;
  EXPECT_EQ(s.runner.stats().multiply_flops, forward);
  s.runner.differentiate(graphs.pointers).loss();
  EXPECT_EQ(s.runner.stats().multiply_flops, forward + 3 * forward);
}

TEST_F(Specialisation, ReachesIntoProductsOfSeveralPartsOfARow) {
  constexpr Index e = 3, h = 4;
  const Parameter table = parameters.add("table", 7, e, Initial::normal(0, 1));
  const Parameter all = parameters.add("all", e + 2 * h, h, Initial::normal(0, 1));
  const VertexFunction function("cell", {.arity = 2}, [&](Vertex& v) {
    const State s = v.state("s", h);
    const Expr word = embedding(table, v.pull_index("word", Presence::sometimes));
    const Expr own = tanh(matmul(concat(word, v.gather(0, s), v.gather(1, s)), all));
    v.scatter(s, own);
    v.push("s", own);
  });
  const Graphs graphs(function, {full_tree(50)});
  Runner runner(host, function, parameters);
  runner.run(graphs.pointers).loss();
  EXPECT_EQ(runner.stats().multiply_flops, 50 * 2 * e * h + 49 * 2 * (2 * h) * h);
}

TEST_F(Specialisation, ComputesAllLeavesAtOnceAndEachLevelInAFewBatches) {
  Trainer s(EngineOptions{}, {.groups = 1});
  const Graphs graphs(s.function, {full_tree(64), full_tree(64), full_tree(64)});
  s.runner.run(graphs.pointers).loss();
  const RunnerStats stats = s.runner.stats();
  EXPECT_EQ(stats.vertices, 3 * 127);
  EXPECT_LE(stats.batches, 5 + 6 * 2 + 5) << "eager segments, two for each of six levels, lazy ones\n"
                                          << s.runner.describe();
}

TEST_F(Specialisation, ComputesEqualValuesOnceAndUnneededOnesNever) {
  Trainer s;
  const auto kernels = [&](bool more) {
    const VertexFunction function("cell", {.arity = 2}, [&](Vertex& v) {
      const State seen = v.state("seen", 2), unseen = v.state("unseen", 2);
      const Expr x = v.pull("x", 2);
      v.scatter(seen, v.gather(0, seen) + tanh(x));
      v.push("y", exp(tanh(x)));
      v.push("z", more ? exp(tanh(x)) : x);
      v.scatter(unseen, more ? tanh(sigmoid(v.gather(0, unseen))) : x);
      v.push("seen", v.gather(0, seen));
    });
    const Graphs graphs(function, many_trees(3, 5));
    Runner runner(s.host, function, s.parameters);
    runner.run(graphs.pointers).loss();
    return runner.stats().kernels;
  };
  EXPECT_EQ(kernels(true), kernels(false));
}

GradientTerms second_operand(const Signature&) { return {GradientTerm{nullptr, {Ref::operand(1)}}, std::nullopt}; }
constexpr Operator measured{
    .name = "measured", .inputs = 2, .infer = same, .gradients = second_operand, .locality = Locality::rowwise};

TEST_F(Specialisation, CopiesRowsOfALookupThatAreAnInput) {
  host.kernels.add(measured, watched_copy);
  const Parameter table = parameters.add("measured", 3, 2, Initial::zeros());
  const VertexFunction function("measured", {}, [&](Vertex& v) {
    v.loss(row_sum(apply(measured, {embedding(table, v.pull_index("i")), slice(v.pull("x", 3), 1, 3)})));
  });
  GraphData data = leaves(2, {1, 2, 3, 4, 5, 6});
  data.indices["i"] = {2, 0};
  differentiated(function, {data});
  EXPECT_EQ(dense(parameters, table), (std::vector<double>{5, 6, 0, 0, 2, 3}));
}

TEST_F(Training, SharesOpsAmongStagesUntilTheyAreWorthOne) {
  Trainer s;
  const auto ops = [&](Index width) {
    const Parameter w = s.parameters.add("w" + std::to_string(width), width, width, Initial::zeros());
    const VertexFunction function("chain", {.arity = 1}, [&](Vertex& v) {
      const State h = v.state("h", width);
      const Expr own = tanh(matmul(v.gather(0, h), w)) + v.pull("x", width);
      v.scatter(h, own);
      v.push("h", own);
    });
    const Graphs graphs(function, {chain_of(100, Floats(static_cast<std::size_t>(100 * width), 1))});
    Runner runner(s.host, function, s.parameters);
    runner.run(graphs.pointers).loss();
    return runner.stats().ops;
  };
  EXPECT_LE(ops(4), 3) << "memory, all levels, loss";
  EXPECT_GE(ops(1024), 2 + 9) << "ten levels are 20 million operations";
}

TEST_F(Training, CountsBatchesOfOneRowEach) {
  const auto stats_with = [](const RunnerOptions& options) {
    Trainer s({}, options);
    const Graphs graphs(s.function, many_trees(1, 10));
    s.runner.run(graphs.pointers).loss();
    return s.runner.stats();
  };
  const RunnerStats single = stats_with({.batch_rows = 1}), all = stats_with({});
  EXPECT_GE(single.batches, single.vertices);
  EXPECT_LT(all.batches, all.vertices);
  EXPECT_EQ(single.multiply_flops, all.multiply_flops);
  EXPECT_EQ(single.batches, stats_with({.schedule = SchedulePolicy::serial}).batches);
}

TEST_F(Training, HoldsNothingOfEarlierMinibatches) {
  for (const SchedulePolicy schedule : {SchedulePolicy::level, SchedulePolicy::depth, SchedulePolicy::agenda}) {
    const RunnerOptions options{.groups = 3, .group_flops = 1, .schedule = schedule};
    Trainer s({}, options);
    unsigned seed = 0;
    for (const int samples : {40, 3, 60, 1, 25}) {
      const Graphs graphs(s.function, many_trees(++seed, samples));
      const double in_old = s.runner.differentiate(graphs.pointers).loss();
      Runner new_runner(s.host, s.function, s.parameters, options);
      EXPECT_EQ(new_runner.differentiate(graphs.pointers).loss(), in_old) << samples << " samples";
    }
  }
}

TEST_F(Training, FormsAsManyGroupsAsHaveWorkEnough) {
  const auto batches = [](std::int64_t group_flops) {
    Trainer s({}, {.groups = 8, .group_flops = group_flops});
    const Graphs graphs(s.function, std::vector<GraphData>(4, many_trees(3, 1).front()));
    s.runner.differentiate(graphs.pointers).loss();
    return s.runner.stats().batches;
  };
  const auto of_one_group = batches(INT64_MAX);
  EXPECT_GT(batches(1), of_one_group * 3 / 2) << "two groups, since levels are narrow";
  EXPECT_EQ(batches(1'000'000'000), of_one_group);
}

/// Types that were seen have gradients later, too: zeros, with which optimisers take a step.
TEST_F(Training, ForgetsTheTypesThatHaveGradients) {
  Trainer s;
  std::mt19937 random(1);
  const Graphs trees(s.function, many_trees(1, 20)), leaf(s.function, {random_graph(1, 2, Form::trees, random)});
  const Parameter inner = s.parameters.find("inner");
  const auto has_gradient = [&](const Graphs& graphs) {
    s.runner.differentiate(graphs.pointers);
    return s.parameters.has_dense_gradient(inner);
  };
  EXPECT_FALSE(has_gradient(leaf));
  EXPECT_TRUE(has_gradient(trees));
  EXPECT_TRUE(has_gradient(leaf));
  s.runner.forget();
  EXPECT_FALSE(has_gradient(leaf));
}

// --- Who runs beside whom

TEST(Overlap, GroupsOfOneMinibatchOverlap) {
  Watched s({.workers = 2}, {.groups = 2, .group_flops = 1});
  std::atomic<int> arrived{0};
  Gate both;
  std::atomic<bool> alone{false};
  s.during.call = [&] {  // the first two come from the two groups, and each waits for the other
    if (++arrived == 2) both.open();
    if (!both.pass()) alone = true;
  };
  s.runner.differentiate(s.graphs.pointers).loss();
  EXPECT_FALSE(alone);
}

TEST(Overlap, TheNextMinibatchIsScheduledWhileOneRuns) {
  Watched s({.workers = 1}, {.ahead = 2});
  Gate gate;
  s.during.call = [&] { gate.pass(); };
  const Minibatch first = s.runner.differentiate(s.graphs.pointers);
  s.parameters.sgd(0.1);
  const Minibatch second = s.runner.differentiate(s.graphs.pointers);  // returns although the first stands at the gate
  EXPECT_EQ(s.engine.stats().waits + s.engine.stats().waits_in_ops, 0u);
  gate.open();
  s.runner.differentiate(s.graphs.pointers);  // would be one too many, so it waits for the first
  EXPECT_EQ(s.engine.stats().waits, 1u);
  EXPECT_NE(first.loss(), second.loss());
}

TEST_F(Training, OfAChainOfAMillionVerticesEnds) {
  constexpr std::int32_t length = sanitized ? 200'000 : 1'000'000;
  const Parameter w = parameters.add("w", 1, 1, Initial::constant(1));
  const VertexFunction function("count", {.arity = 1}, [&](Vertex& v) {
    const State s = v.state("s", 1);
    const Expr one = matmul(v.pull("x", 1), w);
    v.scatter(s, v.gather(0, s) + one);
    v.loss(one);
  });
  EXPECT_EQ(differentiated(function, {chain_of(length, Floats(length, 1))}).loss(), length);
  EXPECT_EQ(parameters.gradient(w).all->get(), std::vector<float>{length});
}

}  // namespace
}  // namespace windrow::testing
