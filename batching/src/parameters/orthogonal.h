// Orthonormal matrices, for initial values.
#pragma once

#include <vector>

#include "windrow/ops/internal/matrix.h"

namespace windrow {

struct MatrixShape {
  Index rows, width;
};

/// Makes the columns of a row-major matrix orthonormal, or its rows if it is wider than high, and multiplies it by
/// `gain`. Of a matrix of independent standard normal numbers, all results are equally likely (Mezzadri 2007). The same
/// numbers give the same bits.
std::vector<float> orthogonal(const std::vector<float>& normal, MatrixShape shape, float gain);

}  // namespace windrow
