// A tensor of equal elements.
#pragma once

#include <vector>

#include "windrow/ops/tensor.h"

namespace windrow::testing {

inline Tensor filled(const Device& device, Index rows, Index width, float value) {
  const Tensor tensor(device, rows, width);
  tensor.set(std::vector<float>(static_cast<std::size_t>(rows * width), value));
  return tensor;
}

}  // namespace windrow::testing
