// The operators that come with Windrow.
//
// Operands are called x, y, ... in order, indices i; `n x w` is a shape of n rows and width w. A parameter is a value
// with a counted number of rows. Gradient operators, and those that move a gradient, have no gradient unless one is
// given here by being another operator of the list.
#pragma once

#include <cstdint>
#include <span>

#include "windrow/ops/operator.h"

namespace windrow::op {

// Elementwise: all operands and the result have one shape.
extern const Operator add;               ///< x + y
extern const Operator sub;               ///< x - y
extern const Operator mul;               ///< x * y
extern const Operator div;               ///< x / y
extern const Operator maximum;           ///< the larger; where equal, the gradient goes to x
extern const Operator neg;               ///< -x
extern const Operator scale;             ///< factor * x; see scaled_by
extern const Operator tanh;              ///< to 3e-7
extern const Operator sigmoid;           ///< 1 / (1 + exp(-x)), to 3e-7
extern const Operator relu;              ///< max(x, 0); at 0 the gradient is 0
extern const Operator exp;               ///< to 1e-6 of the value
extern const Operator log;               ///< natural
extern const Operator square;            ///< x * x
extern const Operator tanh_gradient;     ///< of result and gradient: y * (1 - x * x)
extern const Operator sigmoid_gradient;  ///< of result and gradient: y * x * (1 - x)
extern const Operator relu_gradient;     ///< of result and gradient: y where x > 0, else 0
extern const Operator square_gradient;   ///< of operand and gradient: 2 * x * y
extern const Operator div_gradient;      ///< of result, divisor and gradient: -z * x / y
extern const Operator maximum_gradient;  ///< of an operand, the other, and gradient: z where x is the result, else 0

// Linear.
extern const Operator matmul;          ///< n x k, k x m -> n x m; of a parameter y
extern const Operator matmul_nt;       ///< n x m, k x m -> n x k: x times y transposed; of a parameter y
extern const Operator matmul_tn;       ///< n x k, n x m -> k x m: x transposed times y, the sum over all rows
extern const Operator transpose;       ///< k x m -> m x k, of a parameter
extern const Operator add_bias;        ///< n x w, 1 x w -> n x w: y added to each row
extern const Operator column_sum;      ///< n x w -> 1 x w
extern const Operator row_sum;         ///< n x w -> n x 1
extern const Operator spread_rows;     ///< 1 x w -> n x w: n copies; see to_rows
extern const Operator spread_columns;  ///< n x 1 -> n x w: w copies; see to_width

// Rows and columns moved.
extern const Operator gather_rows;   ///< m x w; n x 1 -> n x w: row r of the result is row i[r] of x
extern const Operator embedding;     ///< the same for a parameter x, a table
extern const Operator scatter_rows;  ///< n x w; n x 1 -> m x w: row r of x added to row i[r] of zeros; see to_rows
extern const Operator concat;        ///< n x w1, n x w2, ... -> n x (w1 + w2 + ...)
extern const Operator slice;         ///< n x w -> n x (end - begin): columns [begin, end); see columns. Splits a concat
extern const Operator place;         ///< n x w -> n x width: x as columns from begin on, zeros elsewhere; see at_column

// Segments: m x w; n x 2 -> n x w. Row r of the result reduces the rows [i[r][0], i[r][1]) of x, first to last. An
// empty segment gives zeros.
extern const Operator segment_sum;
extern const Operator segment_mean;
extern const Operator segment_max;
extern const Operator segment_spread;  ///< n x w; n x 2 -> m x w: row r added to each row of its segment; see to_rows
extern const Operator segment_spread_mean;   ///< the same, divided by the segment's length
extern const Operator segment_max_gradient;  ///< of operand, result and gradient: to the first row that has the maximum

// Losses and what belongs to them.
extern const Operator softmax;           ///< n x w -> n x w, over each row
extern const Operator softmax_gradient;  ///< of result and gradient
/// n x w; n x 1 -> n x 1: -log(softmax(x)[i]), natural; 0 where the label i is -1.
extern const Operator softmax_cross_entropy;
extern const Operator softmax_cross_entropy_gradient;  ///< n x w, gradient n x 1; n x 1 -> n x w

/// n x w; n x 3 -> n x w: an element is 0 with probability `rate`, else divided by 1 - rate. The draw is fixed by
/// dropout_by's seed and site, the row's three keys, and the column (Philox4x32-10, Salmon et al. 2011).
extern const Operator dropout;

// Training. These change what their result held: they take Write::add only.
extern const Operator sgd;       ///< elementwise: result -= rate * (x + decay * result); see at_rate
extern const Operator sgd_rows;  ///< n x w; n x 1 -> m x w: row i[r] of the result -= rate * row r of x, first to last

Attributes scaled_by(double factor);
Attributes to_rows(Rows rows);
Attributes to_width(Index width);
Attributes columns(Index begin, Index end);
Attributes at_column(Index begin, Index width);
/// Throws MisuseError unless 0 <= rate < 1 and site < 65536.
Attributes dropout_by(double rate, std::uint64_t seed, std::uint32_t site);
Attributes at_rate(double rate, double decay = 0);

/// All of the above.
std::span<const Operator* const> all();

}  // namespace windrow::op
