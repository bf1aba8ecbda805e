// Which types of vertices have a computation of their own, and what the others cost.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/batching/cells.h"
#include "tests/batching/oracle.h"
#include "tests/engine/support.h"

namespace windrow {
namespace {

using testing::dense;
using testing::Graphs;

/// Rows that many tables hold, of which a vertex has any.
struct ManyIndices {
  static constexpr std::int32_t rows = 3;
  const int fields;
  Engine engine;
  Device host = host_device(engine);
  Parameters parameters{host, 1};
  Parameter table = parameters.add("table", rows, 2, Initial::uniform(-1, 1));
  Parameter w = parameters.add("w", 2, 2, Initial::uniform(-1, 1));
  VertexFunction function{"many", {.arity = 1}, [this](Vertex& v) {
                            const State s = v.state("s", 2);
                            Expr sum = matmul(v.gather(0, s), w);
                            for (int i = 0; i < fields; ++i) {
                              sum = sum + embedding(table, v.pull_index(name(i), Presence::sometimes));
                            }
                            v.scatter(s, tanh(sum));
                            v.push("sum", sum);
                            v.loss(row_sum(square(sum)));
                          }};

  explicit ManyIndices(int fields_, EngineOptions options = {}) : fields(fields_), engine(options) {}
  static std::string name(int i) { return "i" + std::to_string(i); }

  GraphData graph(std::int32_t vertices, std::mt19937& random) const {
    GraphData data;
    for (std::int32_t v = 0; v < vertices; ++v) {
      data.children.push_back(v % 8 == 0 ? no_child : v - 1);
      data.child_begin.push_back(v + 1);
      for (int i = 0; i < fields; ++i) {
        const bool missing = random() % 2 == 0;
        data.indices[name(i)].push_back(missing ? -1 : static_cast<std::int32_t>(random() % rows));
      }
    }
    return data;
  }

  struct Result {
    double loss;
    std::vector<float> sums;
    std::vector<std::vector<double>> gradients;
    friend bool operator==(const Result&, const Result&) = default;
  };
  Result differentiate(Runner& runner, const GraphData& data) {
    const Graphs graphs(function, {data});
    const Minibatch minibatch = runner.differentiate(graphs.pointers);
    Result result{minibatch.loss(), minibatch.output("sum").get(), {}};
    for (const Parameter& p : {table, w}) result.gradients.push_back(dense(parameters, p));
    return result;
  }
};

TEST(ManyTypes, ArePlannedOnceForAFewTypes) {
  ManyIndices s(16);
  Runner runner(s.host, s.function, s.parameters);
  std::mt19937 random(1);
  for (int step = 0; step < 10; ++step) {
    EXPECT_TRUE(std::isfinite(s.differentiate(runner, s.graph(128, random)).loss));
  }
  EXPECT_EQ(runner.stats().plans, 1);
  EXPECT_EQ(runner.stats().planned_types, 33);
}

TEST(ManyTypes, ThatComeOneByOneArePlannedUntilThereAreMany) {
  ManyIndices s(6);
  Runner runner(s.host, s.function, s.parameters, {.own_types = 4});
  for (std::int32_t type = 0; type < 64; ++type) {
    GraphData data{.child_begin = {0, 0}};
    for (int i = 0; i < 6; ++i) data.indices[s.name(i)] = {(type >> i & 1) != 0 ? 0 : -1};
    s.differentiate(runner, data);
  }
  EXPECT_EQ(runner.stats().plans, 5);
  EXPECT_EQ(runner.stats().planned_types, 1 + 2 + 3 + 4 + 5);
}

TEST(ManyTypes, OfAnyArityAreComputedTogetherWithAndWithoutChildren) {
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const VertexFunction function("any", {.arity = any_arity}, [&](Vertex& v) {
    const State s = v.state("s", 1);
    const Expr sum = v.pull("x", 1) + sum_children(v.each(s));
    v.scatter(s, sum);
    v.push("sum", sum);
  });
  Runner runner(host, function, parameters, {.own_types = 0});
  const auto sums = [&](const GraphData& data) {
    const Graphs graphs(function, {data});
    return runner.run(graphs.pointers).output("sum").get();
  };
  EXPECT_EQ(sums({.child_begin = {0, 0}, .values = {{"x", {3}}}}), std::vector<float>{3});
  EXPECT_EQ(runner.stats().planned_types, 1);
  const GraphData chain{.child_begin = {0, 0, 1}, .children = {0}, .values = {{"x", {3, 4}}}};
  EXPECT_EQ(sums(chain), (std::vector<float>{3, 7}));
  EXPECT_EQ(runner.stats().planned_types, 1 + 2);
}

/// What a minibatch costs after some others, of graphs that are all different.
template <class Graph>
RunnerStats cost_of_a_minibatch(Runner& runner, const VertexFunction& function, Graph graph) {
  std::mt19937 random(1);
  RunnerStats before, after;
  for (int step = 0; step < 8; ++step) {
    before = runner.stats();
    const Graphs graphs(function, {graph(random)});
    EXPECT_TRUE(std::isfinite(runner.differentiate(graphs.pointers).loss()));
    after = runner.stats();
  }
  EXPECT_EQ(after.plans, 1);
  after.batches -= before.batches;
  after.kernels -= before.kernels;
  after.ops -= before.ops;
  after.multiply_flops -= before.multiply_flops;
  after.plans -= before.plans;
  return after;
}

void expect_within(const RunnerStats& one, const RunnerStats& other, std::int64_t factor) {
  EXPECT_EQ(one.plans, 0);
  EXPECT_LE(one.batches, factor * other.batches);
  EXPECT_LE(one.kernels, factor * other.kernels);
  EXPECT_LE(one.ops, factor * other.ops);
  EXPECT_LE(one.multiply_flops, factor * other.multiply_flops);
}

TEST(ManyTypes, OfRandomChildrenCostLittleMoreThanOneTypeForAll) {
  constexpr std::size_t arity = 12;
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const Parameter w = parameters.add("w", 2, 2, Initial::uniform(-1, 1));
  const VertexFunction function("any", {.arity = arity}, [&](Vertex& v) {
    const State s = v.state("s", 2);
    Expr sum = v.pull("x", 2);
    for (std::size_t k = 0; k < arity; ++k) sum = sum + matmul(v.gather(k, s), w);
    v.scatter(s, tanh(sum));
    v.loss(row_sum(square(sum)));
  });
  const auto graph = [](std::mt19937& random) {
    GraphData data;
    for (std::int32_t v = 0; v < 512; ++v) {  // 8 levels of 64
      for (std::size_t k = 0; k < arity; ++k) {
        const bool missing = v < 64 || random() % 2 == 0;
        data.children.push_back(missing ? no_child : v / 64 * 64 - 64 + static_cast<std::int32_t>(random() % 64));
      }
      data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
      data.values["x"].insert(data.values["x"].end(), {1, -1});
    }
    return data;
  };
  Runner chosen(host, function, parameters);
  Runner one_type(host, function, parameters, {.optimisations = {.specialisation = false}});
  expect_within(cost_of_a_minibatch(chosen, function, graph), cost_of_a_minibatch(one_type, function, graph), 2);
}

TEST(ManyTypes, OfRandomIndicesCostLittleMoreThanOneTypeForAll) {
  ManyIndices s(16);
  const auto graph = [&](std::mt19937& random) { return s.graph(512, random); };
  Runner chosen(s.host, s.function, s.parameters);
  Runner one_type(s.host, s.function, s.parameters, {.own_types = 0});
  expect_within(cost_of_a_minibatch(chosen, s.function, graph), cost_of_a_minibatch(one_type, s.function, graph), 2);
}

/// Its instructions under callgrind are the most that the types of a kind take to be planned.
TEST(ManyTypes, UpToTheBoundArePlannedAllOverAgainForEachNewOne) {
  constexpr std::int32_t bound = 32;
  ManyIndices s(16);
  Runner runner(s.host, s.function, s.parameters, {.own_types = bound});
  for (std::int32_t type = 0; type < bound; ++type) {
    GraphData data{.child_begin = {0, 1}, .children = {no_child}};
    for (int i = 0; i < 16; ++i) data.indices[s.name(i)] = {(type >> i & 1) != 0 || i > 4 ? 0 : -1};
    s.differentiate(runner, data);
  }
  EXPECT_EQ(runner.stats().plans, bound);
  EXPECT_EQ(runner.stats().planned_types, bound * (bound + 1) / 2);
}

TEST(ManyTypes, AreComputedAsTypesOfTheirOwnAre) {
  ManyIndices s(6);
  std::mt19937 random(1);
  const GraphData data = s.graph(100, random);
  Runner together(s.host, s.function, s.parameters, {.own_types = 0});
  Runner apart(s.host, s.function, s.parameters, {.own_types = 128});
  const auto one = s.differentiate(together, data), other = s.differentiate(apart, data);
  EXPECT_NEAR(one.loss, other.loss, 1e-5 * other.loss);
  for (std::size_t i = 0; i < one.sums.size(); ++i) EXPECT_NEAR(one.sums[i], other.sums[i], 1e-5);
  for (std::size_t p = 0; p < 2; ++p) {
    ASSERT_EQ(one.gradients[p].size(), other.gradients[p].size());
    for (std::size_t i = 0; i < one.gradients[p].size(); ++i) {
      EXPECT_NEAR(one.gradients[p][i], other.gradients[p][i], 1e-4);
    }
  }
}

TEST(ManyTypes, GiveTheSameBitsForAnyNumberOfWorkers) {
  const auto bits = [](EngineOptions options) {
    ManyIndices s(10, options);
    Runner runner(s.host, s.function, s.parameters, {.groups = 3, .group_flops = 1, .op_flops = 500});
    std::mt19937 random(1);
    std::vector<ManyIndices::Result> results;
    for (int step = 0; step < 4; ++step) results.push_back(s.differentiate(runner, s.graph(90, random)));
    return results;
  };
  const auto serial = bits({.policy = Policy::serial});
  EXPECT_EQ(serial, bits({.workers = 1}));
  EXPECT_EQ(serial, bits({.workers = 3}));
}

TEST(ManyTypes, DoNotSeeTheRowsThatTheyLack) {
  ManyIndices s(2);
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  s.parameters.value(s.table).set({nan, nan, 1, 1, 1, 1});  // a row that nobody looks up
  Runner runner(s.host, s.function, s.parameters, {.own_types = 0});
  GraphData data{.child_begin = {0, 0, 0, 0}};
  data.indices = {{"i0", {-1, 1, -1}}, {"i1", {-1, -1, 2}}};
  const auto result = s.differentiate(runner, data);
  EXPECT_EQ(result.sums, (std::vector<float>{0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(result.gradients[0], (std::vector<double>{0, 0, 2, 2, 2, 2}));
}

TEST(ManyTypes, NoneOfWhichHasAnIndexLeaveNoGradient) {
  ManyIndices s(1);
  Runner runner(s.host, s.function, s.parameters, {.own_types = 0});
  GraphData data{.child_begin = {0, 0, 0}};
  data.indices = {{"i0", {-1, -1}}};
  EXPECT_EQ(s.differentiate(runner, data).loss, 0);
  EXPECT_TRUE(s.parameters.gradient(s.table).rows.empty());
}

TEST(ManyTypes, StillRefuseAnIndexOutOfRange) {
  ManyIndices s(1);
  Runner runner(s.host, s.function, s.parameters, {.own_types = 0});
  GraphData data{.child_begin = {0, 0, 0}};
  data.indices = {{"i0", {-1, 3}}};
  const std::string said = testing::error_of<MisuseError>([&] { Graphs(s.function, {data}); });
  EXPECT_NE(said.find("vertex 1: 'i0' is 3; expected 0 to 2, or -1 for none"), std::string::npos) << said;
}

}  // namespace
}  // namespace windrow
