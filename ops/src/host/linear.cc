// Host kernels of the linear operators: matrix products by oneDNN, the rest by loops.
#include <algorithm>

#include "host/host.h"
#include "host/product.h"
#include "operators/attributes.h"
#include "windrow/ops/operators.h"
#include "windrow/ops/row_sums.h"

namespace windrow {
namespace {

using As = Factor::As;

/// A row as a matrix with `rows` rows.
Matrix<const float> matrix_of(const float* row, Index rows, Index width) { return {row, rows, width, width}; }

template <As x_as, As y_as>
void matmul(const HostCall& k) {
  multiply({{k.in[0], x_as}, {k.in[1], y_as}, k.out, k.write});
}

/// Calls oneDNN once for each row, which costs at least 0.1 us. Loops would be faster only below about 500 flops.
template <As x_as, As y_as>
void matmul_each(const HostCall& k) {
  const auto [rows, inner, columns] = product_sizes(k.attributes);
  const bool x_is = x_as == As::it_is, y_is = y_as == As::it_is;
  for (Index r = 0; r < k.out.rows; ++r) {
    const auto x = matrix_of(k.in[0].row(r), x_is ? rows : inner, x_is ? inner : rows);
    const auto y = matrix_of(k.in[1].row(r), y_is ? inner : columns, y_is ? columns : inner);
    multiply({{x, x_as}, {y, y_as}, {k.out.row(r), rows, columns, columns}, k.write});
  }
}

void transpose(const HostCall& call) {
  // In tiles, so that reads and writes stay within cache lines.
  constexpr Index tile = 16;
  const Matrix<const float> x = call.in[0];
  for (Index r0 = 0; r0 < call.out.rows; r0 += tile) {
    for (Index c0 = 0; c0 < call.out.width; c0 += tile) {
      for (Index r = r0; r < std::min(r0 + tile, call.out.rows); ++r) {
        float* to = call.out.row(r);
        for (Index c = c0; c < std::min(c0 + tile, call.out.width); ++c) {
          to[c] = x.row(c)[r] + (call.write == Write::add ? to[c] : 0);
        }
      }
    }
  }
}

void column_sum(const HostCall& call) {
  zero_unless_adding(call);
  const Matrix<const float> x = call.in[0];
  add_rows(call.out.data, x.width, x.rows,
           [&](Index r, Index begin, float* part, Index n) { add_scaled(part, x.row(r) + begin, n, 1); });
}

}  // namespace

void add_host_linear(KernelTable<float>& table) {
  table.add(op::matmul, matmul<As::it_is, As::it_is>);
  table.add(op::matmul_nt, matmul<As::it_is, As::transposed>);
  table.add(op::matmul_tn, matmul<As::transposed, As::it_is>);
  table.add(op::matmul_each, matmul_each<As::it_is, As::it_is>);
  table.add(op::matmul_each_nt, matmul_each<As::it_is, As::transposed>);
  table.add(op::matmul_each_tn, matmul_each<As::transposed, As::it_is>);
  table.add(op::transpose, transpose);
  table.add(op::column_sum, column_sum);
}

}  // namespace windrow
