// The sizes of products of matrices that lie in rows.
#pragma once

#include "windrow/ops/operator.h"

namespace windrow {

/// The sizes of a product: rows x inner times inner x columns.
struct ProductSizes {
  Index rows, inner, columns;
};

inline ProductSizes product_sizes(const Attributes& product_of) {
  return {product_of.sizes[0], product_of.sizes[1], product_of.sizes[2]};
}

}  // namespace windrow
