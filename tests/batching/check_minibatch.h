// Compares a minibatch with the oracle.
#pragma once

#include <gtest/gtest.h>

#include "tests/batching/cells.h"
#include "tests/batching/oracle.h"
#include "tests/ops/cases.h"
#include "tests/sanitized.h"

namespace windrow::testing {

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

}  // namespace windrow::testing
