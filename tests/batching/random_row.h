// Random rows for tests that compute in double precision besides.
#pragma once

#include <random>
#include <vector>

#include "windrow/ops/internal/matrix.h"

namespace windrow::testing {

/// Uniform in [-2, 2], exact as floats.
inline std::vector<double> random_row(Index count, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-2, 2);
  std::vector<double> row;
  for (Index i = 0; i < count; ++i) row.push_back(uniform(random));
  return row;
}

}  // namespace windrow::testing
