#include "windrow/ops/internal/printed.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "windrow/engine/internal/denormals.h"
#include "windrow/memory/allocator.h"
#include "windrow/ops/internal/cut.h"
#include "windrow/ops/kernel.h"

namespace windrow::printed {

OwnMatrix::OwnMatrix(Index rows, Index width) {
  const Index stride = row_stride(width);
  const auto bytes = sizeof(float) * static_cast<std::size_t>(rows * stride);
  std::byte* const start = host_allocator()->allocate(bytes);
  memory_ = {start, [start, bytes](void*) { host_allocator()->deallocate(start, bytes); }};
  matrix_ = {reinterpret_cast<float*>(start), rows, width, stride};
}

OwnMatrix::OwnMatrix(Index rows, Index width, std::span<const float> elements) : OwnMatrix(rows, width) {
  set(elements);
}

void OwnMatrix::set(std::span<const float> elements) {
  if (elements.size() != static_cast<std::size_t>(matrix_.rows * matrix_.width)) {
    throw std::invalid_argument(std::to_string(elements.size()) + " elements; expected " +
                                std::to_string(matrix_.rows) + " x " + std::to_string(matrix_.width));
  }
  for (Index r = 0; r < matrix_.rows; ++r) {
    std::copy_n(elements.data() + r * matrix_.width, matrix_.width, matrix_.row(r));
  }
}

void apply(const Operator& op, std::initializer_list<Matrix<const float>> in, const Matrix<float>& out, Write write,
           const Attributes& attributes) {
  const DenormalsScope denormals(Denormals::flush);
  run_in_pieces(op, host_kernels().find(op),
                {.in = {in.begin(), in.size()}, .out = out, .attributes = attributes, .write = write, .op = &op},
                *host_allocator());
}

std::vector<float> elements_of(const Matrix<const float>& matrix) {
  std::vector<float> elements;
  for (Index r = 0; r < matrix.rows; ++r) {
    elements.insert(elements.end(), matrix.row(r), matrix.row(r) + matrix.width);
  }
  return elements;
}

}  // namespace windrow::printed
