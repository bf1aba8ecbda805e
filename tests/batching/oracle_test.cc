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

namespace windrow::testing {
namespace {

template <class Cell>
class EveryCell : public ::testing::Test {
 protected:
  /// For tests whose ops are divided among threads as those of other tests.
  static bool adds_no_races() { return thread_sanitized; }

  /// The cell on the host, with its function and its oracle.
  struct Made : OnHost {
    using OnHost::OnHost;
    const Cell cell{parameters};
    const VertexFunction function = function_of(cell);
    Oracle oracle{parameters, [this](OracleVertex& v) { cell(v); }, shape_of<Cell>()};
  };

  void check(Form form, const RunnerOptions& options, unsigned seed) {
    Engine engine({.workers = 2});
    check_cell<Cell>(host_device(engine), form, seed, options);
  }

  /// The loss, outputs and gradients of a minibatch of graphs with several consumers.
  struct Bits {
    double loss;
    std::map<std::string, std::vector<float>> outputs;
    std::vector<std::vector<double>> gradients;
    friend bool operator==(const Bits&, const Bits&) = default;
  };
  Bits bits(const RunnerOptions& options, const EngineOptions& on = {.workers = 2}) const {
    std::mt19937 random(first_seed());
    Made s(on);
    std::vector<GraphData> data;
    for (std::int32_t vertices : {1, 9, 0, 40, 2}) data.push_back(graph_for<Cell>(vertices, Form::dag, random));
    const Graphs graphs(s.function, data);
    Runner runner(s.host, s.function, s.parameters, options);
    const Minibatch minibatch = runner.differentiate(graphs.pointers);
    Bits bits{.loss = minibatch.loss(), .outputs = {}, .gradients = s.gradients()};
    s.oracle.loss(data);  // which knows the outputs
    for (const auto& [name, values] : s.oracle.outputs) bits.outputs[name] = minibatch.output(name).get();
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

TYPED_TEST(EveryCell, ComputesTheSameBitsWithAnyWorkersAndPolicy) {
  SCOPED_TRACE("seed " + std::to_string(first_seed()));
  for (const std::int64_t own_types : {std::int64_t{0}, RunnerOptions().own_types}) {
    const RunnerOptions cut{.groups = 3, .group_flops = 1, .op_flops = 500, .split_rows = 2, .own_types = own_types};
    const auto serial = this->bits(cut, {.policy = Policy::serial});
    for (const int workers : {1, 3}) {
      EXPECT_EQ(this->bits(cut, {.policy = Policy::pool, .workers = workers}), serial);
      EXPECT_EQ(this->bits(cut, {.policy = Policy::chaos, .workers = workers, .chaos_seed = first_seed()}), serial);
    }
  }
}

TYPED_TEST(EveryCell, ComputesManyTilesAsTheOracleDoes) {
  std::mt19937 random(first_seed());
  typename TestFixture::Made s({.policy = Policy::chaos, .workers = 3});
  Runner runner(s.host, s.function, s.parameters, {.groups = 2, .group_flops = 1, .op_flops = 2000, .split_rows = 3});
  std::vector<GraphData> data;
  for (int g = 0; g < 40; ++g) data.push_back(graph_for<TypeParam>(60, Form::dag, random));
  const Graphs graphs(s.function, data);
  const double loss = s.oracle.loss(data);
  const Minibatch result = runner.differentiate(graphs.pointers);
  EXPECT_NEAR(result.loss(), loss, 1e-5 * std::abs(loss));
  for (const auto& [name, expected] : s.oracle.outputs) {
    const std::vector<float> values = result.output(name).get();
    expect_close({values.begin(), values.end()}, expected, 1e-5);
  }
}

TEST(RandomFunctions, ComputeWhatTheOracleComputes) {
  for (unsigned seed = first_seed(); seed < first_seed() + 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    OnHost s({.policy = seed % 3 == 0 ? Policy::chaos : Policy::pool, .workers = 2, .chaos_seed = seed}, seed);
    Parameters& parameters = s.parameters;
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
    Runner runner(s.host, function, parameters, options);
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
}  // namespace windrow::testing
