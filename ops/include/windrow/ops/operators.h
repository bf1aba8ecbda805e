// The operators that come with Windrow.
//
// Operands are called x, y, z in order, index operands i; `n x w` is a shape of n rows and width w. A parameter is a
// value with a counted number of rows. Those named *_gradient, sgd and sgd_rows cannot be differentiated.
//
// Attributes are made by the functions below; each operator that has some says by which.
#pragma once

#include <cstdint>
#include <span>

#include "windrow/ops/operator.h"

namespace windrow::op {

// Elementwise: all operands and the result have one shape.
extern const Operator add;      ///< x + y
extern const Operator sub;      ///< x - y
extern const Operator mul;      ///< x * y
extern const Operator div;      ///< x / y
extern const Operator maximum;  ///< the larger, or NaN if one is; where equal, the gradient goes to x
extern const Operator minimum;  ///< the smaller, or NaN if one is; where equal, the gradient goes to x
extern const Operator neg;      ///< -x
extern const Operator scale;    ///< factor * x; scaled_by
extern const Operator tanh;     ///< error at most 4e-7, within [-1, 1]
extern const Operator sigmoid;  ///< 1 / (1 + exp(-x)), error at most 4e-7, within [0, 1]
extern const Operator relu;     ///< max(x, 0); at 0 the gradient is 0
extern const Operator exp;      ///< error at most 1e-6 of the value, where that is a normal float
extern const Operator log;      ///< natural; -inf at 0, NaN below
extern const Operator square;   ///< x * x
extern const Operator sqrt;     ///< NaN below 0
extern const Operator abs;      ///< at 0 the gradient is 0
/// log(1 + exp(x)), error at most 1e-6 of the value, where that is a normal float. It is -log(sigmoid(-x)) for all x.
extern const Operator softplus;
/// log(sigmoid(x)) = -softplus(-x), with the same precision: finite for every finite x.
extern const Operator log_sigmoid;

// Their gradients, where these are no other operator of the list. `g` is the gradient of the result.
extern const Operator tanh_gradient;            ///< result, g: g * (1 - result^2)
extern const Operator sigmoid_gradient;         ///< result, g: g * result * (1 - result)
extern const Operator relu_gradient;            ///< result, g: 0 where the result is 0, else g
extern const Operator square_gradient;          ///< x, g: 2 * x * g
extern const Operator sqrt_gradient;            ///< result, g: g / (2 * result)
extern const Operator abs_gradient;             ///< x, g: g above 0, -g below, else 0
extern const Operator softplus_gradient;        ///< x, g: g * sigmoid(x)
extern const Operator log_sigmoid_gradient;     ///< x, g: g * sigmoid(-x)
extern const Operator div_gradient;             ///< result, y, g: -g * result / y
extern const Operator maximum_gradient;         ///< x, y, g: g unless x < y, then 0
extern const Operator maximum_gradient_strict;  ///< y, x, g: g where y > x, else 0

// Linear.
extern const Operator matmul;          ///< n x k, k x m -> n x m; of a parameter y
extern const Operator matmul_nt;       ///< n x m, k x m -> n x k: x times y transposed; of a parameter y
extern const Operator matmul_tn;       ///< n x k, n x m -> k x m: x transposed times y, the sum over all rows
extern const Operator transpose;       ///< k x m -> m x k, of a parameter
extern const Operator add_bias;        ///< n x w, 1 x w -> n x w: y added to each row
extern const Operator column_sum;      ///< n x w -> 1 x w
extern const Operator row_sum;         ///< n x w -> n x 1
extern const Operator spread_rows;     ///< 1 x w -> n x w: n copies; to_rows
extern const Operator spread_columns;  ///< n x 1 -> n x w: w copies; to_width

// Products of rows with rows.
extern const Operator row_dot;      ///< n x w, n x w -> n x 1: the sum of the products of each row
extern const Operator mul_columns;  ///< n x w, n x 1 -> n x w: each row times its element of y
/// n x (r * k), n x (k * m) -> n x (r * m): each row of x and of y holds a matrix, row-major, and the result's row
/// holds their product; product_of(r, k, m). With _nt the matrix in y is m x k, and transposed before; with _tn that in
/// x is k x r. They are each other's gradients.
extern const Operator matmul_each, matmul_each_nt, matmul_each_tn;

// Rows and columns moved.
extern const Operator gather_rows;  ///< m x w; n x 1 -> n x w: row r of the result is row i[r] of x
extern const Operator embedding;    ///< the same for a parameter x, a table
/// m x w, m x w; n x 2 -> n x w: the same of y, but zeros where row i[r][0] of x is not i[r][1]. By segment_argmax,
/// back from segment_max to a row.
extern const Operator gather_where;
extern const Operator scatter_rows;  ///< n x w; n x 1 -> m x w: row r of x added to row i[r] of zeros; to_rows
extern const Operator concat;        ///< n x w1, n x w2, ... -> n x (w1 + w2 + ...)
extern const Operator slice;         ///< n x w -> n x (end - begin): columns [begin, end), a part of a split; columns
extern const Operator place;         ///< n x w -> n x width: x from column begin on, zeros elsewhere; at_column

// One of each row.
/// n x w; n x 1 -> n x 1: element i[r] of row r. 0 where i is -1, as a label of softmax_cross_entropy may be.
extern const Operator pick;
extern const Operator pick_gradient;     ///< g of n x 1; n x 1 -> n x w: zeros, but g at i[r]; to_width
extern const Operator row_max;           ///< n x w -> n x 1: NaN if a row has it; 0 if it has no element
extern const Operator row_max_gradient;  ///< x, g of n x 1: to the first that is the maximum

// Images: a row holds `channels` planes of height x width, row-major. A Window2d slides over them.
/// Images, and filters of f x (channels * window) -> n x (f * positions): in each place the sum of products with each
/// filter, not mirrored, zeros around the image; sliding.
extern const Operator conv2d;
extern const Operator conv2d_data_gradient;    ///< g, filters -> images; sliding
extern const Operator conv2d_filter_gradient;  ///< images, g -> filters, the sum over all rows; sliding
/// Images -> n x (channels * positions): the maximum of each place of each plane, NaN if one is. What is around the
/// image does not count; sliding.
extern const Operator max_pool2d;
extern const Operator max_pool2d_gradient;  ///< images, g: to the first of each window that is the maximum; sliding
extern const Operator add_channel_bias;     ///< n x (c * p), 1 x c -> n x (c * p): y[c] added to p columns each
extern const Operator add_channel_bias_gradient;  ///< g: n x (c * p) -> 1 x c, the sum over rows and columns; to_width

// Segments: m x w; n x 2 -> n x w. Row r of the result reduces the rows [i[r][0], i[r][1]) of x, first to last. An
// empty segment gives zeros.
extern const Operator segment_sum;
extern const Operator segment_mean;
extern const Operator segment_max;  ///< NaN if a row has it
/// How many rows of the segment come before the first that has the maximum. Exact up to 2^24.
extern const Operator segment_argmax;

// Back from segments to rows: n x w; n x 2 -> m x w.
extern const Operator segment_spread;        ///< row r of x added to each row of its segment of zeros; to_rows
extern const Operator segment_spread_mean;   ///< the same, divided by the segment's length; to_rows
extern const Operator segment_max_gradient;  ///< x of segment_max, g: to the first row that has the maximum

// Losses and what belongs to them.
extern const Operator softmax;                    ///< n x w -> n x w, over each row
extern const Operator softmax_gradient;           ///< result, g
extern const Operator log_softmax;                ///< log(softmax(x)), natural
extern const Operator log_softmax_gradient;       ///< result, g: g - exp(result) * sum of g
extern const Operator squared_distance;           ///< n x w, n x w -> n x 1: the sum of (x - y)^2 over each row
extern const Operator squared_distance_gradient;  ///< x, y, g of n x 1: 2 * (x - y) * g
/// n x w; n x 1 -> n x 1: -log(softmax(x)[i]), natural. 0 where the label i is -1, whatever x is there.
extern const Operator softmax_cross_entropy;
extern const Operator softmax_cross_entropy_gradient;  ///< x, g of n x 1; n x 1 -> n x w

/// Elementwise, x being a logit and y its target within [0, 1]: -y * log(sigmoid(x)) - (1 - y) * log(sigmoid(-x)),
/// error at most 1e-6 of the value, where that is a normal float. Finite for every finite x. A target outside of [0, 1]
/// fails the op, which names it.
extern const Operator binary_cross_entropy;
extern const Operator binary_cross_entropy_gradient;         ///< elementwise x, y, g: g * (sigmoid(x) - y)
extern const Operator binary_cross_entropy_target_gradient;  ///< elementwise x, g: -x * g

/// n x w; n x 3 -> n x w: an element is 0 with probability `rate`, else divided by 1 - rate; dropout_by. The draw is
/// fixed by its seed and site, the row's three keys, and the column (see philox.h). Of n x 5 indices, the last two of a
/// row are its seed, lower half first, and that of dropout_by is not looked at. At most 262144 wide.
extern const Operator dropout;

// Training. These change what their result held: they take Write::add only.
extern const Operator sgd;  ///< elementwise: result -= rate * (x + decay * result); at_rate
/// The same of a table whose gradient is rows that belong to some of its rows, several to one maybe; rows_at_rate. Any
/// number of n x w, which are one matrix, one below the other; s x 3 and n x 1 -> m x w: bounds and order of
/// row_segments.h. The rows of a segment are added up first, so each row of the table changes once, by the same bits
/// wherever the rows come from. With decay all rows of the table decay, also those of no segment.
extern const Operator sgd_rows;

/// A window and the images that it slides over.
struct Window2d {
  Index channels, height, width;      ///< of the images
  Index window_height, window_width;  ///< of the window, which covers all channels of a conv2d, and one of a max_pool2d
  Index stride = 1;                   ///< in both directions
  Index padding = 0;                  ///< rows and columns on each side of the image that the window reaches into

  Index positions_down() const { return (height + 2 * padding - window_height) / stride + 1; }
  Index positions_across() const { return (width + 2 * padding - window_width) / stride + 1; }
  Index positions() const { return positions_down() * positions_across(); }
  /// Elements.
  Index image() const { return channels * height * width; }
  Index window() const { return channels * window_height * window_width; }
};

/// Throws MisuseError unless sizes and stride are 1 to 65536, the padding is smaller than the window, and the window
/// not larger than the image with its padding.
Attributes sliding(const Window2d& window);
Attributes scaled_by(double factor);
Attributes to_rows(Rows rows);
/// Throws MisuseError for a negative width.
Attributes to_width(Index width);
Attributes columns(Index begin, Index end);
Attributes at_column(Index begin, Index width);
/// Of rows x inner times inner x columns. Throws MisuseError for a size below 0 or above 2^24.
Attributes product_of(Index rows, Index inner, Index columns);
/// The same by the widths of x and y of matmul_each or matmul_each_nt, for so many rows of the matrices in x.
Attributes product_by_widths(Index rows, Index x, Index y);
/// Throws MisuseError unless 0 <= rate < 1 and site < 65536.
Attributes dropout_by(double rate, std::uint64_t seed, std::uint32_t site);
Attributes at_rate(double rate, double decay = 0);
Attributes rows_at_rate(Rows rows, double rate, double decay = 0);

/// All of the above.
std::span<const Operator* const> all();

}  // namespace windrow::op
