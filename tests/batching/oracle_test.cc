// Batches against the oracle: values, losses and gradients over random graphs, of cells and of random functions.
#include "tests/batching/oracle.h"

#include <gtest/gtest.h>

#include "tests/batching/attending_cell.h"
#include "tests/batching/cells.h"
#include "tests/batching/check_minibatch.h"
#include "tests/batching/mixed_cell.h"
#include "tests/batching/random_function.h"
#include "tests/batching/seeing_cell.h"
#include "tests/ops/cases.h"
#include "tests/sanitized.h"
#include "tests/seed.h"

namespace windrow {
namespace {

using testing::AttendingCell;
using testing::check_minibatch;
using testing::ChildSumCell;
using testing::dense;
using testing::expect_close;
using testing::first_seed;
using testing::Form;
using testing::GatesCell;
using testing::graph_for;
using testing::Graphs;
using testing::Kinds;
using testing::MixedCell;
using testing::OddCell;
using testing::Oracle;
using testing::OracleVertex;
using testing::PassingCell;
using testing::random_graph;
using testing::RandomFunction;
using testing::sanitized;
using testing::SeeingCell;
using testing::shape_of;
using testing::thread_sanitized;
using testing::TreeLstm;
using testing::WideCell;

/// WINDROW_TEST_SEED, or 1.
template <class Cell>
VertexFunction function_of(const Cell& cell) {
  return VertexFunction("cell", shape_of<Cell>(), [&](Vertex& v) { cell(v); });
}
VertexFunction function_of(const Kinds& kinds) { return kinds.function(); }

template <class Cell>
class EveryCell : public ::testing::Test {
 protected:
  /// For tests whose ops are divided among threads as those of other tests.
  static bool adds_no_races() { return thread_sanitized; }

  void check(Form form, RunnerOptions options, unsigned seed) {
    SCOPED_TRACE("form " + std::to_string(static_cast<int>(form)) + ", seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Engine engine({.workers = 2});
    const Device host = host_device(engine);
    Parameters parameters(host, seed);
    const Cell cell(parameters);
    const VertexFunction function = function_of(cell);
    Runner runner(host, function, parameters, options);
    Oracle oracle(
        parameters, [&](OracleVertex& v) { cell(v); }, shape_of<Cell>());
    for (int minibatch = 0; minibatch < (sanitized ? 1 : 2); ++minibatch) {
      std::vector<GraphData> data;
      for (std::int32_t vertices : {1, 9, 0, 12, 2}) data.push_back(graph_for<Cell>(vertices, form, random));
      for (std::int32_t vertices : {23, 1, 14}) {
        if (!sanitized) data.push_back(graph_for<Cell>(vertices, form, random));
      }
      check_minibatch(runner, parameters, oracle, function, data);
    }
  }

  /// The loss, outputs and gradients of a minibatch of graphs with several consumers.
  struct Bits {
    double loss;
    std::map<std::string, std::vector<float>> outputs;
    std::vector<std::vector<double>> gradients;
    friend bool operator==(const Bits&, const Bits&) = default;
  };
  Bits bits(const RunnerOptions& options) const {
    std::mt19937 random(first_seed());
    Engine engine({.workers = 2});
    const Device host = host_device(engine);
    Parameters parameters(host, 1);
    const Cell cell(parameters);
    const VertexFunction function = function_of(cell);
    Oracle oracle(
        parameters, [&](OracleVertex& v) { cell(v); }, shape_of<Cell>());  // which knows the outputs
    std::vector<GraphData> data;
    for (std::int32_t vertices : {1, 9, 0, 40, 2}) data.push_back(graph_for<Cell>(vertices, Form::dag, random));
    const Graphs graphs(function, data);
    Runner runner(host, function, parameters, options);
    const Minibatch minibatch = runner.differentiate(graphs.pointers);
    Bits bits{.loss = minibatch.loss(), .outputs = {}, .gradients = {}};
    oracle.loss(data);
    for (const auto& [name, values] : oracle.outputs) bits.outputs[name] = minibatch.output(name).get();
    for (std::size_t i = 0; i < parameters.size(); ++i) bits.gradients.push_back(dense(parameters, parameters[i]));
    return bits;
  }
};
using Cells = ::testing::Types<TreeLstm, OddCell, WideCell, PassingCell, GatesCell, ChildSumCell, MixedCell,
                               AttendingCell, Kinds, SeeingCell>;
TYPED_TEST_SUITE(EveryCell, Cells);

TYPED_TEST(EveryCell, ComputesTreesAsTheOracleDoes) {
  this->check(Form::trees, {}, first_seed());
  this->check(Form::any_order, {}, first_seed() + 1);
}

TYPED_TEST(EveryCell, ComputesGraphsWithSeveralConsumersAsTheOracleDoes) {
  this->check(Form::dag, {}, first_seed() + 2);
}

TYPED_TEST(EveryCell, ComputesGroupsAndSingleVerticesAsTheOracleDoes) {
  this->check(Form::dag, {.groups = 3, .group_flops = 1}, first_seed() + 3);
  this->check(Form::any_order, {.groups = 2, .group_flops = 1, .batch_rows = 1}, first_seed() + 4);
  this->check(Form::trees, {.batch_rows = 3}, first_seed() + 5);
}

TYPED_TEST(EveryCell, ComputesInManyOpsAsTheOracleDoes) {
  this->check(Form::dag, {.op_flops = 1, .split_rows = 1}, first_seed() + 6);
  this->check(Form::any_order, {.groups = 2, .group_flops = 1, .op_flops = 500, .split_rows = 2}, first_seed() + 7);
  this->check(Form::dag, {.op_flops = 1, .split_rows = 2, .optimisations = {.slots = false, .streaming = false}},
              first_seed() + 8);
  this->check(Form::dag, {.op_flops = 1, .optimisations = {.lazy = false, .splitting = false}}, first_seed() + 9);
}

TYPED_TEST(EveryCell, ComputesByEverySchedulesAsTheOracleDoes) {
  if (this->adds_no_races()) GTEST_SKIP() << "other tests divide the same ops among threads";
  for (const SchedulePolicy policy :
       {SchedulePolicy::depth, SchedulePolicy::agenda, SchedulePolicy::complete, SchedulePolicy::serial}) {
    SCOPED_TRACE(to_string(policy));
    this->check(Form::dag, {.groups = 2, .group_flops = 1, .schedule = policy}, first_seed() + 6);
    this->check(Form::any_order, {.schedule = policy}, first_seed() + 7);
  }
}

TYPED_TEST(EveryCell, ComputesWithoutOptimisationsAsTheOracleDoes) {
  this->check(Form::dag, {.groups = 2, .group_flops = 1, .optimisations = {.specialisation = false}}, first_seed());
  this->check(Form::dag, {.optimisations = {.eager = false}}, first_seed() + 1);
  this->check(Form::dag, {.groups = 2, .group_flops = 1, .optimisations = {.lazy = false}}, first_seed() + 2);
  this->check(Form::dag, {.optimisations = {.fusion = false}}, first_seed() + 3);
  this->check(Form::dag, {.optimisations = {.slots = false}}, first_seed() + 4);
  this->check(Form::dag, {.groups = 3, .group_flops = 1, .optimisations = {.specialisation = false, .slots = false}},
              first_seed() + 5);
  this->check(Form::dag, {.optimisations = {.lazy = false, .slots = false}}, first_seed() + 6);
  this->check(Form::any_order, {.batch_rows = 1, .optimisations = {.slots = false, .fusion = false}}, first_seed() + 7);
  this->check(Form::dag, {.optimisations = {.in_place = false}}, first_seed() + 4);
  this->check(Form::dag, {.optimisations = {.sharing = false}}, first_seed() + 4);
  this->check(Form::dag, {.optimisations = {.sharing = false, .fusion = false}}, first_seed() + 5);
  this->check(Form::any_order,
              {.groups = 2,
               .group_flops = 1,
               .schedule = SchedulePolicy::agenda,
               .optimisations = {.specialisation = false,
                                 .eager = false,
                                 .lazy = false,
                                 .slots = false,
                                 .in_place = false,
                                 .sharing = false,
                                 .fusion = false,
                                 .streaming = false,
                                 .splitting = false}},
              first_seed() + 4);
}

TYPED_TEST(EveryCell, ComputesManyTypesOfVerticesAsOneAsTheOracleDoes) {
  if (this->adds_no_races()) GTEST_SKIP() << "other tests divide the same ops among threads";
  this->check(Form::dag, {.own_types = 0}, first_seed());
  this->check(Form::any_order, {.groups = 2, .group_flops = 1, .own_types = 1}, first_seed() + 1);
  this->check(Form::trees, {.own_types = 2, .optimisations = {.slots = false}}, first_seed() + 2);
  this->check(Form::dag, {.schedule = SchedulePolicy::complete, .own_types = 0, .optimisations = {.lazy = false}},
              first_seed() + 3);
  this->check(Form::dag, {.own_types = 0, .batch_rows = 3, .optimisations = {.eager = false, .fusion = false}},
              first_seed() + 4);
  this->check(Form::dag, {.own_types = 0, .optimisations = {.specialisation = false, .sharing = false}},
              first_seed() + 5);
}

TYPED_TEST(EveryCell, ComputesTheSameBitsWithoutSlots) {
  if (this->adds_no_races()) GTEST_SKIP() << "other tests divide the same ops among threads";
  const Optimisations all = {}, others[] = {{.specialisation = false},
                                            {.eager = false, .lazy = false},
                                            {.sharing = false},
                                            {.fusion = false}};
  const auto compare = [&](RunnerOptions options, std::string_view what) {
    SCOPED_TRACE(what);
    const auto with = this->bits(options);
    options.optimisations.slots = false;
    EXPECT_EQ(with, this->bits(options));
  };
  compare({.optimisations = all}, "all others");
  for (const Optimisations& other : others) compare({.optimisations = other}, "one other left out");
  for (const SchedulePolicy policy :
       {SchedulePolicy::depth, SchedulePolicy::agenda, SchedulePolicy::complete, SchedulePolicy::serial}) {
    compare({.groups = 3, .group_flops = 1, .schedule = policy}, to_string(policy));
  }
}

TYPED_TEST(EveryCell, ComputesManyTilesAsTheOracleDoes) {
  std::mt19937 random(first_seed());
  Engine engine({.policy = Policy::chaos, .workers = 3});
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const TypeParam cell(parameters);
  const VertexFunction function = function_of(cell);
  Runner runner(host, function, parameters, {.groups = 2, .group_flops = 1, .op_flops = 2000, .split_rows = 3});
  Oracle oracle(
      parameters, [&](OracleVertex& v) { cell(v); }, shape_of<TypeParam>());
  std::vector<GraphData> data;
  for (int g = 0; g < 40; ++g) data.push_back(graph_for<TypeParam>(60, Form::dag, random));
  const Graphs graphs(function, data);
  const double loss = oracle.loss(data);
  const Minibatch result = runner.differentiate(graphs.pointers);
  EXPECT_NEAR(result.loss(), loss, 1e-5 * std::abs(loss));
  for (const auto& [name, expected] : oracle.outputs) {
    const std::vector<float> values = result.output(name).get();
    expect_close({values.begin(), values.end()}, expected, 1e-5);
  }
}

TEST(RandomFunctions, ComputeWhatTheOracleComputes) {
  for (unsigned seed = first_seed(); seed < first_seed() + 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Engine engine({.policy = seed % 3 == 0 ? Policy::chaos : Policy::pool, .workers = 2, .chaos_seed = seed});
    const Device host = host_device(engine);
    Parameters parameters(host, seed);
    const RandomFunction body(random, parameters);
    const VertexFunction function("random", {.arity = body.arity}, [&](Vertex& v) { body(v); });
    RunnerOptions options{.groups = 1 + static_cast<int>(random() % 3), .group_flops = Index{1} << random() % 24};
    if (random() % 3 == 0) options.batch_rows = static_cast<Index>(1 + random() % 4);
    options.schedule = static_cast<SchedulePolicy>(seed % 5);
    const auto on = [&] { return random() % 4 > 0; };
    options.optimisations = {.specialisation = on(),
                             .eager = on(),
                             .lazy = on(),
                             .slots = on(),
                             .in_place = on(),
                             .sharing = on(),
                             .fusion = on(),
                             .streaming = on(),
                             .splitting = on()};
    if (on()) options.op_flops = static_cast<Index>(1 + random() % 2000);
    options.split_rows = static_cast<Index>(1 + random() % 3);
    if (random() % 2 == 0) options.own_types = static_cast<std::int64_t>(random() % 4);
    Runner runner(host, function, parameters, options);
    Oracle oracle(parameters, [&](OracleVertex& v) { body(v); });
    std::vector<GraphData> data;
    for (std::int32_t size : {1, 6, 0, 9}) {
      data.push_back(random_graph(size, body.arity, static_cast<Form>(random() % 3), random));
    }
    check_minibatch(runner, parameters, oracle, function, data);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

}  // namespace
}  // namespace windrow
