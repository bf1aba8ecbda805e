// What each optimisation saves, in counts that no clock is needed for.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/batching/cells.h"

namespace windrow {
namespace {

using testing::Form;
using testing::GatesCell;
using testing::Graphs;
using testing::random_graph;
using testing::TreeLstm;

/// Of a minibatch of trees with and without.
template <class Cell>
class Counts {
 public:
  RunnerStats of(const Optimisations& optimisations) {
    Runner runner(host_, function_, parameters_, {.optimisations = optimisations});
    runner.differentiate(graphs_.pointers).loss();
    plan_ = runner.describe();
    return runner.stats();
  }
  /// Of the last plan: how many steps are of that name.
  std::ptrdiff_t steps(const std::string& name) const {
    std::istringstream lines(plan_);
    std::ptrdiff_t count = 0;
    for (std::string line; std::getline(lines, line);) count += line.find(" " + name + " ") != std::string::npos;
    return count;
  }

 private:
  static std::vector<GraphData> data() {
    std::mt19937 random(1);
    std::vector<GraphData> graphs;
    for (int i = 0; i < 10; ++i) graphs.push_back(random_graph(20, Cell::arity, Form::trees, random));
    return graphs;
  }
  Engine engine_;
  Device host_ = host_device(engine_);
  Parameters parameters_{host_, 1};
  Cell cell_{parameters_};
  VertexFunction function_{"cell", {.arity = Cell::arity}, [&](Vertex& v) { cell_(v); }};
  Graphs graphs_{function_, data()};
  std::string plan_;
};

TEST(StepTimes, AreTakenOfAllThatStepsDoIfTheyAreAskedFor) {
  const auto times_of = [](bool timed) {
    Engine engine({.workers = 2});
    const Device host = host_device(engine);
    Parameters parameters(host, 1);
    const TreeLstm cell(parameters);
    const VertexFunction function("cell", {.arity = TreeLstm::arity}, [&](Vertex& v) { cell(v); });
    std::mt19937 random(1);
    const Graphs graphs(function, {random_graph(200, TreeLstm::arity, Form::trees, random)});
    Runner runner(host, function, parameters, {.time_steps = timed});
    runner.differentiate(graphs.pointers).loss();
    engine.wait_all();
    return runner.stats().times;
  };
  const StepTimes timed = times_of(true), untimed = times_of(false);
  EXPECT_GT(timed.product_ns, 0);
  EXPECT_GT(timed.arithmetic_ns, 0);
  EXPECT_GT(timed.move_ns, 0);
  EXPECT_GT(timed.arithmetic_bytes, 0);
  EXPECT_GT(timed.move_bytes, 0);
  EXPECT_EQ(untimed.product_ns + untimed.arithmetic_ns + untimed.move_ns + untimed.move_bytes, 0);
}

TEST(StepTimes, OfOperatorsAddUpToThoseOfTheirKind) {
  Engine engine({.workers = 2});
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const TreeLstm cell(parameters);
  const VertexFunction function("cell", {.arity = TreeLstm::arity}, [&](Vertex& v) { cell(v); });
  std::mt19937 random(1);
  const Graphs graphs(function, {random_graph(200, TreeLstm::arity, Form::trees, random)});
  Runner runner(host, function, parameters, {.time_steps = true});
  const auto train = [&] {
    runner.differentiate(graphs.pointers).loss();
    engine.wait_all();
    return runner.stats();
  };
  const RunnerStats once = train(), twice = train();
  const StepTimes second = twice.times - once.times;
  const auto sum = [](const OperatorTimes& times, std::int64_t OperatorTime::*member) {
    std::int64_t all = 0;
    for (const auto& [name, time] : times) all += time.*member;
    return all;
  };
  EXPECT_EQ(sum(second.products, &OperatorTime::ns), second.product_ns);
  EXPECT_EQ(sum(second.arithmetic, &OperatorTime::ns), second.arithmetic_ns);
  EXPECT_EQ(sum(second.moves, &OperatorTime::ns), second.move_ns);
  EXPECT_EQ(sum(second.products, &OperatorTime::flops), twice.multiply_flops - once.multiply_flops);
  EXPECT_EQ(sum(second.products, &OperatorTime::bytes), 0);
  EXPECT_EQ(sum(second.arithmetic, &OperatorTime::bytes), second.arithmetic_bytes);
  EXPECT_EQ(sum(second.moves, &OperatorTime::bytes), second.move_bytes);
  for (const char* const name : {"matmul", "matmul_tn"}) {
    ASSERT_EQ(second.products.count(name), 1u) << name;
    EXPECT_GT(second.products.at(name).steps, 0) << name;
  }
  EXPECT_EQ(second.arithmetic.count("tanh"), 1u);
  EXPECT_EQ(second.moves.count("scatter"), 1u);
}

TEST(Copies, AreTransposedWhereProductsHaveRowsEnough) {
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const Parameter w = parameters.add("w", 4, 4, Initial::constant(0.5f));
  const VertexFunction function("chain", {.arity = 1}, [&](Vertex& v) {
    const State h = v.state("h", 4);
    const Expr own = tanh(matmul(v.gather(0, h), w) + v.pull("x", 4));
    v.scatter(h, own);
    v.loss(row_sum(own));
  });
  Runner runner(host, function, parameters);
  const auto ops_of = [&](std::size_t chains) {
    const GraphData chain{
        .child_begin = {0, 0, 1, 2}, .children = {0, 1}, .values = {{"x", std::vector<float>(12, 1)}}};
    const Graphs graphs(function, std::vector<GraphData>(chains, chain));
    const std::int64_t before = runner.stats().ops;
    runner.differentiate(graphs.pointers).loss();
    return runner.stats().ops - before;
  };
  EXPECT_EQ(ops_of(3) + 1, ops_of(40)) << "which transposes w first";
}

TEST(Optimisations, SpecialisationMultipliesNoStatesThatAreNotThere) {
  Counts<TreeLstm> counts;
  EXPECT_LT(counts.of({}).multiply_flops,
            0.8 * static_cast<double>(counts.of({.specialisation = false}).multiply_flops));
}

TEST(Optimisations, EagerAndLazyBatchingNeedFewerBatches) {
  Counts<TreeLstm> counts;
  const RunnerStats with = counts.of({});
  EXPECT_LT(with.batches, counts.of({.eager = false}).batches);
  EXPECT_LT(with.batches, counts.of({.lazy = false}).batches);
}

TEST(Optimisations, SlotsNeedNoGathersBeforeWhatLooksAtChildren) {
  Counts<TreeLstm> counts;
  const RunnerStats with = counts.of({});
  EXPECT_EQ(counts.steps("gather"), 0);
  EXPECT_GT(counts.steps("scatter"), 0);
  const RunnerStats without = counts.of({.slots = false});
  EXPECT_GT(counts.steps("gather"), 0);
  EXPECT_EQ(counts.steps("scatter"), 0);
  EXPECT_EQ(with.multiply_flops, without.multiply_flops);
  EXPECT_LT(with.batches, without.batches);
}

TEST(Optimisations, SharingTakesLessMemoryAndChangesNoBits) {
  const Index h = 2 * 64;  // so wide that values lie beside each other in one matrix
  std::mt19937 random(1);
  std::vector<GraphData> data;
  for (int i = 0; i < 10; ++i) data.push_back(random_graph(20, 2, Form::trees, random));
  Engine engine;
  const Device host = host_device(engine);
  std::vector<std::vector<float>> gradients[2];
  std::int64_t bytes[2];
  for (const bool sharing : {false, true}) {
    Parameters parameters(host, 1);
    const windrow::TreeLstm cell(parameters, {TreeLstm::vocabulary, h, h, TreeLstm::classes});
    const VertexFunction function = cell.function();
    const Graphs graphs(function, data);
    Runner runner(host, function, parameters, {.groups = 2, .optimisations = {.sharing = sharing}});
    for (int i = 0; i < 2; ++i) runner.differentiate(graphs.pointers);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Gradient gradient = parameters.gradient(parameters[i]);
      if (gradient.all) gradients[sharing].push_back(gradient.all->get());
    }
    bytes[sharing] = runner.stats().peak_bytes;
  }
  EXPECT_GE(gradients[0].size(), 5u);
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_LT(bytes[true], 0.5 * static_cast<double>(bytes[false]));
}

TEST(Optimisations, FusionRunsManyStepsAtATime) {
  Counts<TreeLstm> counts;
  EXPECT_LT(counts.of({}).batches, 0.5 * static_cast<double>(counts.of({.fusion = false}).batches));
}

}  // namespace
}  // namespace windrow
