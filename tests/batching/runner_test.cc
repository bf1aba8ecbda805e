// Batches against the oracle: values, losses and gradients over random graphs.
#include "windrow/batching/runner.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/batching/cells.h"
#include "tests/batching/oracle.h"
#include "tests/ops/cases.h"

namespace windrow {
namespace {

using testing::dense;
using testing::expect_close;
using testing::Form;
using testing::Graphs;
using testing::OddCell;
using testing::Oracle;
using testing::OracleVertex;
using testing::random_graphs;
using testing::TreeLstm;
using testing::Values;

template <class Cell>
class EveryCell : public ::testing::Test {
 protected:
  VertexFunction function_of(const Cell& cell) {
    return VertexFunction("cell", {.arity = Cell::arity}, [&](Vertex& v) { cell(v); });
  }

  void check(Form form, RunnerOptions options, unsigned seed) {
    SCOPED_TRACE("form " + std::to_string(static_cast<int>(form)) + ", seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Engine engine({.workers = 2});
    const Device host = host_device(engine);
    Parameters parameters(host, seed);
    const Cell cell(parameters);
    const VertexFunction function = function_of(cell);
    Runner runner(host, function, parameters, options);
    Oracle oracle(parameters, [&](OracleVertex& v) { cell(v); });
    for (int minibatch = 0; minibatch < 2; ++minibatch) {
      const auto data = random_graphs(Cell::arity, form, random);
      const Graphs graphs(function, data);
      const double loss = oracle.loss(data);
      const auto outputs = oracle.outputs;
      for (const bool training : {false, true}) {
        SCOPED_TRACE(training ? "training" : "inference");
        const Minibatch result = training ? runner.differentiate(graphs.pointers) : runner.run(graphs.pointers);
        EXPECT_NEAR(result.loss(), loss, 1e-5 * std::abs(loss));
        for (const auto& [name, expected] : outputs) {
          SCOPED_TRACE(name);
          const std::vector<float> values = result.output(name).get();
          expect_close({values.begin(), values.end()}, expected, 1e-5);
        }
      }
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        SCOPED_TRACE(parameters.name(parameters[p]));
        expect_close(dense(parameters, parameters[p]), oracle.gradient(parameters[p], data), 1e-4);
      }
    }
  }
};
using Cells = ::testing::Types<TreeLstm, OddCell>;
TYPED_TEST_SUITE(EveryCell, Cells);

unsigned first_seed() {
  const char* given = std::getenv("WINDROW_TEST_SEED");
  return given == nullptr ? 1 : static_cast<unsigned>(std::stoul(given));
}

TYPED_TEST(EveryCell, ComputesTreesAsTheOracleDoes) {
  this->check(Form::trees, {}, first_seed());
  this->check(Form::any_order, {}, first_seed() + 1);
}

TYPED_TEST(EveryCell, ComputesGraphsWithSeveralConsumersAsTheOracleDoes) {
  this->check(Form::dag, {}, first_seed() + 2);
}

TYPED_TEST(EveryCell, ComputesGroupsAndSingleVerticesAsTheOracleDoes) {
  this->check(Form::dag, {.groups = 3, .group_vertices = 10}, first_seed() + 3);
  this->check(Form::any_order, {.groups = 2, .group_vertices = 1, .batch_rows = 1}, first_seed() + 4);
  this->check(Form::trees, {.batch_rows = 3}, first_seed() + 5);
}

}  // namespace
}  // namespace windrow
