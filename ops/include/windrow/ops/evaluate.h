// Evaluates operators without an engine, in double precision: for test oracles and for gradient checks.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "windrow/ops/kernel.h"

namespace windrow {

/// One application: the shapes, whose row counts must be numbers, and the operands' elements in row-major order.
struct Application {
  Signature signature = {};
  std::vector<std::vector<double>> in = {};
  std::vector<std::vector<std::int32_t>> indices = {};
};

/// The result in row-major order, added to `before` if that is given; both followed by the elements of the operator's
/// states, if it has some. Throws MisuseError if operands do not fit, or if there is no kernel for `op`.
std::vector<double> evaluate(const KernelTable<double>& kernels, const Operator& op, const Application& application,
                             std::optional<std::vector<double>> before = std::nullopt);

/// Compares op's gradients with central differences at the application's operands. Returns the largest |gradient -
/// difference| / (1 + |difference|) over all elements of all operands, where the differentiated value is the sum of the
/// result's elements with weights 1, -1/2, 1/3, ... A correct rule gives about 1e-8; at kinks and ties the error is
/// arbitrary. Returns infinity if a gradient has the wrong shape or is NaN. Costs two evaluations per element. Throws
/// MisuseError if `op` has no gradient.
double gradient_error(const KernelTable<double>& kernels, const Operator& op, const Application& application);

}  // namespace windrow
