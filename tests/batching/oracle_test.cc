// Batches against the oracle: values, losses and gradients over random graphs, of cells and of random functions.

#include "tests/batching/check_minibatch.h"
#include "tests/batching/layers_cell.h"
#include "tests/batching/random_function.h"

namespace windrow::testing {
namespace {

constexpr SchedulePolicy later_policies[] = {SchedulePolicy::depth, SchedulePolicy::agenda, SchedulePolicy::complete,
                                             SchedulePolicy::serial};

template <class Cell>
class EveryCell : public ::testing::Test {
 protected:
  /// The cell on the host, with its function and its oracle.
  struct Made : OnHost {
    using OnHost::OnHost;
    const Cell cell{parameters};
    const VertexFunction function = function_of(cell);
    Oracle oracle{parameters, [this](OracleVertex& v) { cell(v); }, shape_of<Cell>()};
  };

  /// Minibatches of graphs of these forms, each with another seed.
  static void check(const std::vector<std::pair<Form, RunnerOptions>>& all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      Engine engine({.workers = 2});
      check_cell<Cell>(host_device(engine), all[i].first, first_seed() + static_cast<unsigned>(i), all[i].second);
    }
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
using Cells = ::testing::Types<TreeLstm, OddCell, WideCell, PassingCell, ChildSumCell, MixedCell, AttendingCell, Kinds,
                               ImageCell>;
TYPED_TEST_SUITE(EveryCell, Cells);

/// In one op or many, in groups and by single vertices.
TYPED_TEST(EveryCell, ComputesGraphsAsTheOracleDoes) {
  this->check({{Form::trees, {}},
               {Form::any_order, {}},
               {Form::dag, {}},
               {Form::dag, {.groups = 3, .group_flops = 1}},
               {Form::any_order, {.groups = 2, .group_flops = 1, .batch_rows = 1}},
               {Form::trees, {.batch_rows = 3}},
               {Form::dag, {.op_flops = 1, .split_rows = 1}},
               {Form::any_order, {.groups = 2, .group_flops = 1, .op_flops = 500, .split_rows = 2}},
               {Form::dag, {.op_flops = 1, .split_rows = 2, .optimisations = {.slots = false, .streaming = false}}},
               {Form::dag, {.op_flops = 1, .optimisations = {.lazy = false, .splitting = false}}}});
}

TYPED_TEST(EveryCell, ComputesByEverySchedulesAsTheOracleDoes) {
  if (thread_sanitized) GTEST_SKIP() << "other tests divide the same ops among threads";
  for (const SchedulePolicy policy : later_policies) {
    SCOPED_TRACE(to_string(policy));
    this->check(
        {{Form::dag, {.groups = 2, .group_flops = 1, .schedule = policy}}, {Form::any_order, {.schedule = policy}}});
  }
}

TYPED_TEST(EveryCell, ComputesWithoutOptimisationsAsTheOracleDoes) {
  const Optimisations none{false, false, false, false, false, false, false, false, false};
  this->check(
      {{Form::dag, {.groups = 2, .group_flops = 1, .optimisations = {.specialisation = false}}},
       {Form::dag, {.optimisations = {.eager = false}}},
       {Form::dag, {.groups = 2, .group_flops = 1, .optimisations = {.lazy = false}}},
       {Form::dag, {.optimisations = {.fusion = false}}},
       {Form::dag, {.optimisations = {.slots = false}}},
       {Form::dag, {.groups = 3, .group_flops = 1, .optimisations = {.specialisation = false, .slots = false}}},
       {Form::dag, {.optimisations = {.lazy = false, .slots = false}}},
       {Form::any_order, {.batch_rows = 1, .optimisations = {.slots = false, .fusion = false}}},
       {Form::dag, {.optimisations = {.in_place = false}}},
       {Form::dag, {.optimisations = {.sharing = false}}},
       {Form::dag, {.optimisations = {.sharing = false, .fusion = false}}},
       {Form::any_order, {.groups = 2, .group_flops = 1, .schedule = SchedulePolicy::agenda, .optimisations = none}}});
}

TYPED_TEST(EveryCell, ComputesManyTypesOfVerticesAsOneAsTheOracleDoes) {
  if (thread_sanitized) GTEST_SKIP() << "other tests divide the same ops among threads";
  this->check({{Form::dag, {.own_types = 0}},
               {Form::any_order, {.groups = 2, .group_flops = 1, .own_types = 1}},
               {Form::trees, {.own_types = 2, .optimisations = {.slots = false}}},
               {Form::dag, {.schedule = SchedulePolicy::complete, .own_types = 0, .optimisations = {.lazy = false}}},
               {Form::dag, {.own_types = 0, .batch_rows = 3, .optimisations = {.eager = false, .fusion = false}}},
               {Form::dag, {.own_types = 0, .optimisations = {.specialisation = false, .sharing = false}}}});
}

TYPED_TEST(EveryCell, ComputesTheSameBitsWithoutSlots) {
  if (thread_sanitized) GTEST_SKIP() << "other tests divide the same ops among threads";
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
  for (const SchedulePolicy policy : later_policies) {
    compare({.groups = 3, .group_flops = 1, .schedule = policy}, to_string(policy));
  }
}

TYPED_TEST(EveryCell, ComputesTheSameBitsWithAnyWorkersAndPolicy) {
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
  for (unsigned seed = first_seed(); seed < first_seed() + (thread_sanitized ? 20 : 60); ++seed) {
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

/// Writes one of three random functions for each vertex of random graphs, and asks for some values at once.
void check_program(unsigned seed, const LazyOptions& options) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  OnHost s({.workers = 2}, seed);
  std::vector<RandomFunction> bodies = {RandomFunction(random, s.parameters)};
  for (int i = 0; i < 2; ++i) bodies.push_back(RandomFunction(random, s.parameters, &bodies.back()));
  const auto body = [&](auto& v) { bodies[v.kind()](v); };
  Oracle oracle(s.parameters, body);
  LazyGraph graph(s.host, s.parameters, options);
  LazyProgram program{graph};
  std::vector<GraphData> data;
  std::vector<std::pair<LazyExpr, Floats>> asked;
  for (const std::int32_t vertices : {1, 9, 0, 14}) {
    GraphData& own = data.emplace_back(random_graph(vertices, bodies[0].arity, Form::dag, random));
    for (std::int32_t v = 0; v < vertices; ++v) own.kinds.push_back(static_cast<std::int32_t>(random() % 3));
    program.states.assign(own.kinds.size(), {});
    for (std::size_t v = 0; v < own.kinds.size(); ++v) {
      LazyVertex vertex(program, own, v);
      body(vertex);
      if (random() % 12 == 0) asked.emplace_back(program.losses.back(), program.losses.back().value());
    }
    program.before += own.kinds.size();
  }
  const bool training = options.use == LazyOptions::For::training;
  if (training) graph.backward(program.losses);
  const double loss = oracle.loss(data);
  double sum = 0;
  for (const LazyExpr& one : program.losses) sum += static_cast<double>(one.scalar());
  EXPECT_NEAR(sum, loss, 1e-5 * (1 + std::abs(loss)));
  for (const auto& [value, seen] : asked) EXPECT_EQ(value.value(), seen);
  for (const auto& [name, values] : program.pushed) {
    SCOPED_TRACE(name);
    const Values& expected = oracle.outputs.at(name);
    Values all(expected.size(), 0);  // as the oracle has it for the other vertices
    for (const auto& [vertex, value] : values) {
      const Floats row = value.value();
      std::ranges::copy(row, all.begin() + static_cast<std::ptrdiff_t>(vertex * row.size()));
    }
    expect_close(all, expected, 1e-5);
  }
  if (training) check_gradients(s.parameters, oracle, data);
}

/// Some keep all of a flush, some its values, and some the one or the other.
TEST(LazyPrograms, GiveWhatTheReferenceGives) {
  constexpr std::int64_t flops[] = {0, 500, INT64_MAX};
  for (unsigned seed = first_seed(); seed < first_seed() + (thread_sanitized ? 10 : 30); ++seed) {
    check_program(seed,
                  {.runner = {.schedule = static_cast<SchedulePolicy>(seed % 5)}, .recompute_below = flops[seed % 3]});
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(LazyPrograms, GiveWhatTheReferenceGivesWhateverRunnersAreTold) {
  const Optimisations lacking[] = {{.specialisation = false}, {.eager = false},    {.lazy = false},
                                   {.slots = false},          {.sharing = false},  {.fusion = false},
                                   {.streaming = false},      {.splitting = false}};
  unsigned seed = first_seed();
  for (const Optimisations& one : lacking) {
    check_program(++seed, {.runner = {.optimisations = one}, .recompute_below = 500 * (seed % 2)});
  }
  check_program(++seed, {.runner = {.ahead = 1, .batch_rows = 1}});
  check_program(++seed, {.runner = {.groups = 3, .group_flops = 1}});
  check_program(++seed, {.runner = {.op_flops = 1, .split_rows = 1}, .recompute_below = 0});
}

TEST(LazyPrograms, GiveWhatTheReferenceGivesWithoutTraining) {
  for (unsigned seed = first_seed(); seed < first_seed() + 10; ++seed) {
    check_program(seed, {.use = LazyOptions::For::inference});
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace windrow::testing
