// Reads the attributes of operators, for kernels.
#pragma once

#include "windrow/ops/operators.h"

namespace windrow {

/// The sizes of products of matrices that lie in rows: rows x inner times inner x columns.
struct ProductSizes {
  Index rows, inner, columns;
};

inline ProductSizes product_sizes(const Attributes& product_of) {
  return {product_of.sizes[0], product_of.sizes[1], product_of.sizes[2]};
}

/// The window of convolutions and pooling.
inline op::Window2d window_of(const Attributes& sliding) {
  const auto& s = sliding.sizes;
  return {.channels = s[0],
          .height = s[1],
          .width = s[2],
          .window_height = s[3],
          .window_width = s[4],
          .stride = s[5],
          .padding = s[6]};
}

}  // namespace windrow
