// Matrix products by oneDNN, for the host kernels that are made of them.
#pragma once

#include "windrow/ops/kernel.h"

namespace windrow {

/// A matrix as it enters a product.
struct Factor {
  enum class As : char { it_is = 'N', transposed = 'T' };
  Matrix<const float> matrix;
  As as = As::it_is;

  Index width() const { return as == As::it_is ? matrix.width : matrix.rows; }
};

struct Product {
  Factor x, y;
  Matrix<float> out;
  Write write = Write::overwrite;
};

/// out = x y, or out += x y, on the calling thread. Shapes fit.
void multiply(const Product& product);

/// Whether multiply() uses multiply_few_rows(), because that is expected to be faster.
bool has_few_rows(const Product& product);

/// multiply() where x is not transposed, by a kernel of our own. Meant for few rows.
void multiply_few_rows(const Product& product);

}  // namespace windrow
