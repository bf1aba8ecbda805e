// The operators that come with Windrow.
//
// Operands are called x, y, z in order, the index operand i, the gradient of the result g. `n x w` is a shape of n rows
// and width w; index shapes follow a semicolon, and `->` precedes the result's shape. A parameter is a value with a
// fixed number of rows. The comments of operators that need attributes end with the function that makes them, such as
// `to_rows`.
//
// Operators named *_gradient, segment_argmax, gather_where, scatter_bags, gather_sum, gather_weighted_sum, gather_dot,
// sum_parts and those for training have no gradient. The operands of arg_top_k, argmax_matmul and sample get none: the
// result counts as a constant. Results that are numbers of columns are floats, exact up to 2^24.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <span>

#include "windrow/ops/internal/step_numbers.h"
#include "windrow/ops/operator.h"

namespace windrow::op {

// Elementwise: all operands and the result have one shape.
extern const Operator add;      ///< x + y
extern const Operator sub;      ///< x - y
extern const Operator mul;      ///< x * y
extern const Operator div;      ///< x / y
extern const Operator maximum;  ///< the larger element, or NaN if one is NaN; the gradient of equal elements goes to x
extern const Operator minimum;  ///< the smaller element, or NaN if one is NaN; the gradient of equal elements goes to x
/// log(exp(x) + exp(y)), natural logarithm: the larger element plus softplus of minus the difference; finite for all
/// finite elements.
extern const Operator log_add_exp;
extern const Operator neg;    ///< -x
extern const Operator scale;  ///< factor * x; scaled_by
/// factor * x + shift; scaled_and_shifted.
extern const Operator scale_shift;
/// factor / x; scaled_by.
extern const Operator reciprocal;
extern const Operator tanh;     ///< error at most 4e-7, within [-1, 1]
extern const Operator sigmoid;  ///< 1 / (1 + exp(-x)), error at most 4e-7, within [0, 1]
extern const Operator relu;     ///< max(x, 0); its gradient at 0 is 0
extern const Operator exp;      ///< relative error at most 1e-6 where the value is a normal float
extern const Operator log;      ///< natural logarithm; -inf at 0, NaN below 0
extern const Operator square;   ///< x * x
extern const Operator sqrt;     ///< square root; NaN below 0
extern const Operator abs;      ///< its gradient at 0 is 0
/// log(1 + exp(x)) = -log(sigmoid(-x)); relative error at most 1e-6 where the value is a normal float.
extern const Operator softplus;
/// log(sigmoid(x)) = -softplus(-x), with the same precision; finite for every finite x.
extern const Operator log_sigmoid;
/// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))), the approximation of Hendrycks and Gimpel 2016: PyTorch's
/// gelu with approximate='tanh'. Error at most 1e-6 * max(1, |x|).
extern const Operator gelu;
extern const Operator silu;        ///< x * sigmoid(x), also called swish; relative error at most 1e-6
extern const Operator elu;         ///< x where x > 0, otherwise alpha * (exp(x) - 1) (Clevert et al. 2016); with_alpha
extern const Operator leaky_relu;  ///< x where x >= 0, otherwise slope * x; its gradient at 0 is slope; with_slope
extern const Operator clamp;       ///< x, but at least low and at most high; its gradient at both ends is 1; within
/// x^power: NaN for x below 0 unless the power is whole, inf at 0 for a power below 0. The gradient at 0 is 0 for
/// powers above 1, 1 for 1, and infinite for powers below 1. Relative error at most 1e-6 * (1 + |log(result)|);
/// to_power.
extern const Operator pow;
/// x, as a constant: x gets no gradient.
extern const Operator stop_gradient;
/// x; its gradient is -factor times that of the result (Ganin and Lempitsky 2015); scaled_by.
extern const Operator reverse_gradient;

// Gradients of the elementwise operators that are not themselves operators of the list.
extern const Operator tanh_gradient;            ///< result, g: g * (1 - result^2)
extern const Operator sigmoid_gradient;         ///< result, g: g * result * (1 - result)
extern const Operator relu_gradient;            ///< result, g: 0 where the result is 0, otherwise g
extern const Operator square_gradient;          ///< x, g: 2 * x * g
extern const Operator sqrt_gradient;            ///< result, g: g / (2 * result)
extern const Operator abs_gradient;             ///< x, g: g where x > 0, -g where x < 0, otherwise 0
extern const Operator softplus_gradient;        ///< x, g: g * sigmoid(x), relative error at most 1e-6
extern const Operator log_sigmoid_gradient;     ///< x, g: g * sigmoid(-x), relative error at most 1e-6
extern const Operator gelu_gradient;            ///< x, g
extern const Operator silu_gradient;            ///< x, g
extern const Operator elu_gradient;             ///< x, g: g where x > 0, otherwise g * alpha * exp(x)
extern const Operator leaky_relu_gradient;      ///< x, g: g where x > 0, otherwise slope * g
extern const Operator clamp_gradient;           ///< x, g: g where low <= x <= high, otherwise 0
extern const Operator pow_gradient;             ///< x, g: g * power * x^(power - 1)
extern const Operator div_gradient;             ///< result, y, g: -g * result / y
extern const Operator log_add_exp_gradient;     ///< x, y, g: g * sigmoid(x - y)
extern const Operator maximum_gradient;         ///< x, y, g: 0 where x < y, otherwise g
extern const Operator maximum_gradient_strict;  ///< y, x, g: g where y > x, otherwise 0

// Linear.
extern const Operator matmul;          ///< n x k, k x m -> n x m; y is a parameter
extern const Operator matmul_nt;       ///< n x m, k x m -> n x k: x times y transposed; y is a parameter
extern const Operator matmul_tn;       ///< n x k, n x m -> k x m: x transposed times y, a sum over all rows
extern const Operator transpose;       ///< k x m -> m x k; x is a parameter
extern const Operator add_bias;        ///< n x w, 1 x w -> n x w: adds y to each row
extern const Operator column_sum;      ///< n x w -> 1 x w
extern const Operator row_sum;         ///< n x w -> n x 1
extern const Operator spread_rows;     ///< 1 x w -> n x w: n copies; to_rows
extern const Operator spread_columns;  ///< n x 1 -> n x w: w copies; to_width
extern const Operator mul_row;         ///< n x w, 1 x w -> n x w: each row times y, element by element
extern const Operator column_dot;      ///< n x w, n x w -> 1 x w: the dot product of each pair of columns

// Products in other semirings, of n x k and k x m -> n x m; y is a parameter. They are steps of dynamic programs, such
// as the forward algorithm and Viterbi's algorithm over sequences of m labels.
/// log(sum over i of exp(x[i] + y[i][j])), natural logarithm; finite for all finite operands, such as -1e30 for a
/// forbidden transition.
extern const Operator log_matmul;
extern const Operator log_matmul_gradient;         ///< x, y, result, g -> n x k: of x
extern const Operator log_matmul_weight_gradient;  ///< x, y, result, g -> k x m: of y, a sum over all rows
/// The maximum over i of x[i] + y[i][j], NaN if one is NaN; the gradient goes to the first i that has it.
extern const Operator max_matmul;
extern const Operator max_matmul_gradient;         ///< x, y, g -> n x k: of x
extern const Operator max_matmul_weight_gradient;  ///< x, y, g -> k x m: of y, a sum over all rows
extern const Operator argmax_matmul;               ///< the first i that has it

// Products of corresponding rows.
extern const Operator row_dot;      ///< n x w, n x w -> n x 1: the dot product of each pair of rows
extern const Operator mul_columns;  ///< n x w, n x 1 -> n x w: each row times its element of y
/// n x (r * k), n x (k * m) -> n x (r * m): each row of x and of y contains a row-major matrix, and the result's row is
/// their product; product_of(r, k, m). For _nt, the matrix in y is m x k and is transposed first; for _tn, the matrix
/// in x is k x r and is transposed first. The three are each other's gradients.
extern const Operator matmul_each, matmul_each_nt, matmul_each_tn;

// Moving rows and columns.
extern const Operator gather_rows;  ///< m x w; n x 1 -> n x w: row r of the result is row i[r] of x
extern const Operator embedding;    ///< the same, where x is a parameter, a table
/// m x w; n x b -> n x w: row r of the result is the sum of the rows i[r][0], ..., i[r][b - 1] of x, a table; -1 for
/// none.
extern const Operator embedding_bag;
/// n x w; n x b -> m x w: adds row r of x to the rows i[r][0], ..., i[r][b - 1] of a zero matrix; -1 for none; to_rows.
extern const Operator scatter_bags;
/// m x w, m x w; n x 2 -> n x w: row r of the result is row i[r][0] of y, with zeros where that row of x is not
/// i[r][1]. With segment_argmax as x, this passes the gradient of segment_max to a row.
extern const Operator gather_where;
extern const Operator scatter_rows;  ///< n x w; n x 1 -> m x w: adds row r of x to row i[r] of a zero matrix; to_rows
extern const Operator concat;        ///< n x w1, n x w2, ... -> n x (w1 + w2 + ...)
extern const Operator slice;         ///< n x w -> n x (end - begin): columns [begin, end); columns
extern const Operator place;  ///< n x w -> n x width: x at columns begin and following, zeros elsewhere; at_column

// One element of each row.
/// n x w; n x 1 -> n x 1: element i[r] of row r, or 0 where i[r] is -1 (a missing label).
extern const Operator pick;
extern const Operator pick_gradient;     ///< g of n x 1; n x 1 -> n x w: g at column i[r], zeros elsewhere; to_width
extern const Operator row_max;           ///< n x w -> n x 1: NaN if the row contains NaN; 0 if the width is 0
extern const Operator row_max_gradient;  ///< x, g of n x 1 -> n x w: g at the first maximum of the row

/// n x (q * c) -> n x (k * c): each row of x contains q rows of c columns, and the result's row contains the k largest
/// elements of each column (k <= q). NaN counts as the largest; of equal elements the first one comes first; largest.
extern const Operator top_k;
extern const Operator top_k_gradient;  ///< x, g of the result's shape -> n x (q * c); largest
extern const Operator arg_top_k;       ///< as top_k, but the numbers of their rows, 0 to q - 1; largest
/// n x w; n x 3 -> n x 1: a column drawn from the distribution softmax(x) of each row, by the largest sum of x and
/// Gumbel noise; drawn_by. The draw is a function of the seed, the site and the row's three keys (see philox.h). Width
/// at most 262144.
extern const Operator sample;

// Normalisation of each row, n x w -> n x w, without factors and offsets of its own; with_epsilon.
/// (x - mean) / sqrt(variance + epsilon), for the mean and the variance (divided by w) of the row (Ba et al. 2016).
extern const Operator layer_norm;
extern const Operator layer_norm_gradient;  ///< x, g
extern const Operator rms_norm;             ///< x / sqrt(mean of x^2 + epsilon) (Zhang and Sennrich 2019)
extern const Operator rms_norm_gradient;    ///< x, g

// Images: a row contains `channels` planes of height x width, row-major. A Window2d slides over them, and takes
// `positions` positions in each plane.
/// Images, filters of f x (channels * window) -> n x (f * positions): cross-correlation of each image with each filter,
/// with zero padding; sliding.
extern const Operator conv2d;
extern const Operator conv2d_data_gradient;    ///< g, filters -> images; sliding
extern const Operator conv2d_filter_gradient;  ///< images, g -> filters, a sum over all rows; sliding
/// Images -> n x (channels * positions): the maximum within the window, for each position and plane, NaN if the window
/// contains NaN. Padding does not count; sliding.
extern const Operator max_pool2d;
extern const Operator max_pool2d_gradient;  ///< images, g -> images: g at the first maximum of each window; sliding
extern const Operator add_channel_bias;  ///< n x (c * p), 1 x c -> n x (c * p): adds y[k] to the p columns of channel k
extern const Operator add_channel_bias_gradient;  ///< g: n x (c * p) -> 1 x c, a sum over rows and positions; to_width

// Segments: m x w; n x 2 -> n x w. Row r of the result reduces rows [i[r][0], i[r][1]) of x, in this order. An empty
// segment gives zeros.
extern const Operator segment_sum;
extern const Operator segment_mean;
extern const Operator segment_max;  ///< NaN if the segment contains NaN
/// The position, within the segment, of the first row with the maximum. Exact up to 2^24.
extern const Operator segment_argmax;

/// m x w; n x 2, k x 1 -> n x w, with index operands i and j: row r of the result is the sum of rows j[q] of x for q in
/// [i[r][0], i[r][1]), in this order.
extern const Operator gather_sum;
/// m x w, l x 1; n x 2, k x 2 -> n x w: the same sum of rows j[q][0] of x, each times row j[q][1] of y.
extern const Operator gather_weighted_sum;
/// m x w, l x w; n x 2, k x 2 -> n x 1: row r of the result is the sum of the dot products of row j[q][0] of x and row
/// j[q][1] of y for q in [i[r][0], i[r][1]).
extern const Operator gather_dot;

// From segments back to rows: n x w; n x 2 -> m x w.
extern const Operator segment_spread;        ///< adds row r of x to each row of segment r of a zero matrix; to_rows
extern const Operator segment_spread_mean;   ///< the same, divided by the segment's length; to_rows
extern const Operator segment_max_gradient;  ///< x of segment_max, g: g at the first row with the maximum

// Losses and related operators.
extern const Operator softmax;                    ///< n x w -> n x w, over each row
extern const Operator softmax_gradient;           ///< result, g
extern const Operator log_softmax;                ///< n x w -> n x w: log(softmax(x)), natural logarithm
extern const Operator log_softmax_gradient;       ///< result, g: g - exp(result) * sum of g
extern const Operator squared_distance;           ///< n x w, n x w -> n x 1: the sum of (x - y)^2 over each row
extern const Operator squared_distance_gradient;  ///< x, y, g of n x 1: 2 * (x - y) * g
/// n x w; n x 1 -> n x 1: -log(softmax(x)[i]), natural logarithm. 0 where the label i is -1, whatever x is.
extern const Operator softmax_cross_entropy;
extern const Operator softmax_cross_entropy_gradient;  ///< x, g of n x 1; n x 1 -> n x w

/// n x w; n x 1 -> n x 1: cross entropy with smoothed labels (Szegedy et al. 2016), as PyTorch's label_smoothing: the
/// target is 1 - epsilon + epsilon / w for the label and epsilon / w for all others. 0 where the label is -1, whatever
/// x is; smoothed_by.
extern const Operator smoothed_cross_entropy;
extern const Operator smoothed_cross_entropy_gradient;  ///< x, g of n x 1; n x 1 -> n x w; smoothed_by

/// n x w; n x 1 -> n x 1, for scores x: max(0, margin + the largest score but that of the label - x[i]), the
/// multi-class hinge loss of Crammer and Singer 2001. 0 where the label i is -1, whatever x is, and where w is 1;
/// with_margin. Its gradient goes to the label and to the first of the largest other scores; it is 0 where the loss is
/// 0.
extern const Operator hinge;
extern const Operator hinge_gradient;  ///< x, g of n x 1; n x 1 -> n x w; with_margin

/// n x w -> n x 1: log(sum of exp(x)) over each row, natural logarithm; finite for all finite x; 0 if w is 0.
extern const Operator log_sum_exp;
/// x, result, g, both of n x 1 -> n x w: g * exp(x - result), divided by the sum of exp(x - result) of the row, since
/// the result may have been rounded.
extern const Operator log_sum_exp_gradient;

/// Elementwise, for a logit x and a target y within [0, 1]: -y * log(sigmoid(x)) - (1 - y) * log(sigmoid(-x)). Relative
/// error at most 1e-6 where the value is a normal float; finite for every finite x. A target outside [0, 1] fails the
/// op, whose error names it.
extern const Operator binary_cross_entropy;
extern const Operator binary_cross_entropy_gradient;         ///< elementwise x, y, g: g * (sigmoid(x) - y)
extern const Operator binary_cross_entropy_target_gradient;  ///< elementwise x, g: -x * g

/// n x w; n x 3 -> n x w: an element is 0 with probability `rate`, otherwise x / (1 - rate); dropout_by. The draw is a
/// function of the seed, the site, the row's three keys and the column (see philox.h). With n x 5 indices, the last two
/// are the row's seed, lower half first, which replaces that of dropout_by. Width at most 262144.
extern const Operator dropout;

// Training. These operators update their result; they accept Write::add only.
extern const Operator sgd;  ///< elementwise: result -= rate * (x + decay * result); at_rate
/// n x w, any number of times; s x 3, n x 1 -> m x w: sgd for a table whose gradient is given as rows, of which several
/// may belong to one row of the table; rows_at_rate. The operands are taken as one matrix, one below the other; the
/// indices are bounds and order of row_segments.h. The rows of a segment are added up first, so each row of the table
/// changes once, with the same bits for any division of the rows among operands. With decay all rows of the table
/// decay, also those without gradient.
extern const Operator sgd_rows;

/// n x w, any number of times; s x 3, n x 1 -> s x w: the gradient of a table as one row for each of its rows that has
/// one. Operands and indices are those of sgd_rows; row r of the result is the sum of segment r.
extern const Operator sum_parts;

// Steps of optimisers: x is the gradient, y the 1 x StepNumbers::count numbers of the step. Let w be the result, and g
// = x * scale * scale_again, clipped to +-most, plus penalty * w. Each operator computes w *= 1 - rate * decay, and
// then its formula below. m and v are its states, as in PyTorch. Where g is squared, a finite g beyond +-2^63 counts as
// +-2^63 (its square is a float), and an infinite one as NaN; v stops at the largest float. 1 - first means (1 - first)
// - first_tail, which is exact for coefficients near 1; likewise for second.
extern const Operator sgd_step;       ///< w -= rate * g
extern const Operator momentum_step;  ///< m = first * m + g; w -= rate * m, or rate * (g + first * m) if second is 1
extern const Operator adagrad_step;   ///< v += g^2; w -= rate * g / (sqrt(v) + epsilon)
extern const Operator rmsprop_step;   ///< v = first * v + (1 - first) * g^2; w -= rate * g / (sqrt(v) + epsilon)
/// m = first * m + (1 - first) * g; v = second * v + (1 - second) * g^2;
/// w -= rate * (m / first_correction) / (sqrt(v / second_correction) + epsilon)
extern const Operator adam_step;
/// The same for some rows of a table: s x w, 1 x count; s x 1 -> m x w, where row r of x is the gradient of row i[r] of
/// the result. The rows ascend, as in the first column of the bounds of sum_parts. Others do not change; to_rows.
extern const Operator sgd_step_rows, momentum_step_rows, adagrad_step_rows, rmsprop_step_rows;
/// Also takes m x 1: how many steps each row has taken, including this one. The corrections are computed from these
/// numbers.
extern const Operator adam_step_rows;
/// 1 x count; s x 1 -> m x 1: adds 1 to each row i[r] unless the step's scale is 0. Rows ascend as above; to_rows.
extern const Operator count_step_rows;

/// n x w -> 1 x 2: the sum of the squares of all elements, and the sum of the squares of 2^-96 times the elements,
/// which is finite where the first sum is too large for a float. If the second sum is below 2^-126, it may be 0.
extern const Operator squared_norm;
/// n x count, then 1 x 2 or 1 x 1 any number of times -> n x count: limits the numbers of a step whose gradients have
/// these squared norms. Multiplies the scale by most_norm / (norm + 1e-6) if that is below 1, where `norm` is the norm
/// of all scaled gradients together (Pascanu et al. 2013). If the product is below 2^-100, its square root becomes both
/// scale and scale_again. The scale becomes NaN if the norm is not finite and most_norm is. A scale of 0 stays.
extern const Operator limit_norm;

/// A window and the images that it slides over. Sizes are in elements.
struct Window2d {
  Index channels, height, width;      ///< of the images
  Index window_height, window_width;  ///< it covers all channels for conv2d, one channel for max_pool2d
  Index stride = 1;                   ///< in both directions
  Index padding = 0;                  ///< rows and columns of padding on each side of the image

  Index positions_down() const { return (height + 2 * padding - window_height) / stride + 1; }
  Index positions_across() const { return (width + 2 * padding - window_width) / stride + 1; }
  Index positions() const { return positions_down() * positions_across(); }
  /// Numbers of elements.
  Index image() const { return channels * height * width; }
  Index window() const { return channels * window_height * window_width; }
};

/// Throws MisuseError unless sizes and stride are between 1 and 65536, the padding is smaller than the window, and the
/// window fits into the padded image.
Attributes sliding(const Window2d& window);
/// For scale, reciprocal and reverse_gradient. This function and all that follow throw MisuseError for finite numbers
/// outside the range of a float. All except this one and scaled_and_shifted() also throw it for NaN.
Attributes scaled_by(double factor);
/// For scale_shift.
Attributes scaled_and_shifted(double factor, double shift);
/// For elu. Throws MisuseError unless alpha is finite and not negative.
Attributes with_alpha(double alpha);
/// For leaky_relu. Throws MisuseError unless the slope is finite.
Attributes with_slope(double slope);
/// For clamp. Throws MisuseError unless low <= high; one or both may be infinite.
Attributes within(double low, double high);
/// For pow. Throws MisuseError unless the power is a finite float other than 0.
Attributes to_power(double power);
/// For operators whose operands do not determine the number of rows of the result.
Attributes to_rows(Rows rows);
/// For operators whose operands do not determine the width of the result; for add_channel_bias_gradient, the number of
/// channels. Throws MisuseError for a negative width.
Attributes to_width(Index width);
/// For slice: columns [begin, end). infer() throws if they are not within the operand.
Attributes columns(Index begin, Index end);
/// For place: the first column, and the width of the result. infer() throws if the operand does not fit.
Attributes at_column(Index begin, Index width);
/// For products of rows x inner by inner x columns matrices. Throws MisuseError for a size below 0 or above 2^24.
Attributes product_of(Index rows, Index inner, Index columns);
/// The same, from the number of rows of the matrices in x, and the widths of the operands x and y of matmul_each or
/// matmul_each_nt.
Attributes product_by_widths(Index rows, Index x, Index y);
/// For smoothed_cross_entropy. Throws MisuseError unless 0 <= epsilon < 1.
Attributes smoothed_by(double epsilon);
/// For hinge. Throws MisuseError unless the margin is finite and not negative.
Attributes with_margin(double margin);
/// The order of the elements that top_k chooses: from the largest to the smallest, or as in the column.
enum class Order : std::uint8_t { descending, by_place };
/// For top_k: the k largest of each of `columns` columns. Throws MisuseError for numbers below 1.
Attributes largest(Index k, Index columns = 1, Order order = Order::descending);
/// For sample. `site` distinguishes several draws with one seed. Throws MisuseError unless site < 65536.
Attributes drawn_by(std::uint64_t seed, std::uint32_t site);
/// For layer_norm and rms_norm. Throws MisuseError unless epsilon is finite and above 0.
Attributes with_epsilon(double epsilon);
/// For dropout. `site` distinguishes several dropouts with one seed. Throws MisuseError unless 0 <= rate < 1 and site <
/// 65536.
Attributes dropout_by(double rate, std::uint64_t seed, std::uint32_t site);
/// For sgd: the learning rate and the weight decay. Throws MisuseError unless both are in the range of a float.
Attributes at_rate(double rate, double decay = 0);
/// For sgd_rows: the rows of the table, the learning rate and the weight decay.
Attributes rows_at_rate(Rows rows, double rate, double decay = 0);

/// Checks attributes that were stored, by making them again with the function that the operator names. Ignores
/// Attributes::made_by. Throws MisuseError as that function does, and for attributes that it does not make. Also throws
/// it for functions that a program defines, and for those of sgd and sgd_rows.
Attributes remade(const Operator& op, const Attributes& stored);

/// All operators of this header.
std::span<const Operator* const> all();

}  // namespace windrow::op
