// Operators computed without an engine, in double precision: for oracles, and to check gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "windrow/ops/kernel.h"

namespace windrow {

/// One application: its shapes, which are counted, and its operands, row by row.
struct Application {
  Signature signature = {};
  std::vector<std::vector<double>> in = {};
  std::vector<std::vector<std::int32_t>> indices = {};
};

/// The result, row by row; added to `before` if that is given. Throws MisuseError for operands that do not fit.
std::vector<double> evaluate(const KernelTable<double>& kernels, const Operator& op, const Application& application,
                             std::optional<std::vector<double>> before = std::nullopt);

/// How far op's gradients are from central differences at the application's operands: the largest
/// |gradient - difference| / (1 + |difference|) over all elements of all operands, for the sum of the result's elements
/// with weights 1, -1/2, 1/3, ... A right rule gives about 1e-8; kinks and ties give anything. Infinite for a gradient
/// of the wrong shape or one that is not a number. Costs two evaluations for each element.
double gradient_error(const KernelTable<double>& kernels, const Operator& op, const Application& application);

}  // namespace windrow
