// Compares a minibatch with the oracle.
#pragma once

#include "tests/batching/mixed_cell.h"
#include "tests/batching/oracle.h"

namespace windrow::testing {

/// Checks the gradients of a minibatch against the oracle.
inline void check_gradients(const Parameters& parameters, Oracle& oracle, const std::vector<GraphData>& data) {
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    SCOPED_TRACE(parameters.name(parameters[p]));
    const Type type = parameters[p].type();
    const auto size = static_cast<std::size_t>(type.rows.number() * type.width);
    constexpr std::size_t enough = thread_sanitized ? 2 : sanitized ? 6 : 16;  // elements of large parameters
    const std::map<std::size_t, double> expected = oracle.gradient(parameters[p], data, 1 + size / enough);
    std::vector<double> gradient = dense(parameters, parameters[p]);
    if (gradient.empty()) gradient.assign(size, 0);
    ASSERT_EQ(gradient.size(), size);
    double largest = 1;  // where terms cancel, their rounding errors remain
    for (const auto& [i, value] : expected) largest = std::max(largest, std::abs(value));
    for (const auto& [i, value] : expected) ASSERT_NEAR(gradient[i], value, 1e-4 * largest) << "element " << i;
  }
}

/// Checks inference, training and the gradients of a minibatch against the oracle.
inline void check_minibatch(Runner& runner, const Parameters& parameters, Oracle& oracle,
                            const VertexFunction& function, const std::vector<GraphData>& data) {
  const Graphs graphs(function, data);
  const double loss = oracle.loss(data);
  const auto outputs = oracle.outputs;
  for (const bool training : {false, true}) {
    SCOPED_TRACE(training ? "training" : "inference");
    const Minibatch result = training ? runner.differentiate(graphs.pointers) : runner.run(graphs.pointers);
    EXPECT_NEAR(result.loss(), loss, 1e-5 * (1 + std::abs(loss)));
    for (const auto& [name, expected] : outputs) {
      SCOPED_TRACE(name);
      const std::vector<float> values = result.output(name).get();
      expect_close({values.begin(), values.end()}, expected, 1e-5);
    }
  }
  check_gradients(parameters, oracle, data);
}

template <class Cell>
VertexFunction function_of(const Cell& cell) {
  return VertexFunction("cell", shape_of<Cell>(), [&](Vertex& v) { cell(v); });
}
inline VertexFunction function_of(const Kinds& kinds) { return kinds.function(); }

/// Checks minibatches of random graphs of a cell.
template <class Cell>
void check_cell(const Device& device, Form form, unsigned seed, const RunnerOptions& options = {}) {
  SCOPED_TRACE("form " + std::to_string(static_cast<int>(form)) + ", seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Parameters parameters(device, seed);
  const Cell cell(parameters);
  const VertexFunction function = function_of(cell);
  Runner runner(device, function, parameters, options);
  Oracle oracle(
      parameters, [&](OracleVertex& v) { cell(v); }, shape_of<Cell>());
  for (int minibatch = 0; minibatch < (sanitized ? 1 : 2); ++minibatch) {
    std::vector<GraphData> data;
    for (std::int32_t vertices : {1, 9, 0, 12, 2}) data.push_back(graph_for<Cell>(vertices, form, random));
    check_minibatch(runner, parameters, oracle, function, data);
  }
}

}  // namespace windrow::testing
