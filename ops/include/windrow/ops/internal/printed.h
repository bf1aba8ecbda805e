// Building blocks of the programs that print_source() prints: static.h.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "windrow/ops/internal/matrix.h"
#include "windrow/ops/kernel.h"

namespace windrow::printed {

/// A matrix in memory of its own, with the stride that kernels are fastest with. An owner.
class OwnMatrix {
 public:
  OwnMatrix(Index rows, Index width);
  /// A matrix with these elements, row by row. Throws as set().
  OwnMatrix(Index rows, Index width, std::span<const float> elements);

  /// Throws std::invalid_argument unless there are as many elements as the matrix has.
  void set(std::span<const float> elements);
  float* data() const { return matrix_.data; }
  operator Matrix<const float>() const { return matrix_; }

 private:
  std::shared_ptr<void> memory_;
  Matrix<float> matrix_;
};

/// Computes an operator on the calling thread. Large calls are cut into pieces by their shape, as ops of an engine are.
void apply(const Operator& op, std::initializer_list<Matrix<const float>> in, const Matrix<float>& out,
           Write write = Write::overwrite, const Attributes& attributes = {});

/// Row by row.
std::vector<float> elements_of(const Matrix<const float>& matrix);

}  // namespace windrow::printed
