// The operators of operators.h, by name, for expressions (expr.h) and lazy expressions (lazy.h).
//
// One definition serves both kinds of expressions, so an operator is added here only. The functions are friends that
// argument-dependent lookup finds: call them without a namespace, as in `tanh(matmul(x, w))`, or as `windrow::tanh(x)`
// where a class has a member of that name. For vertex functions all
// throw as apply() of expr.h does; for lazy expressions, as apply() of lazy.h does, with the line of the call.
//
// Not here: operators that differ between the two kinds, such as concat and embedding.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>

#include "windrow/ops/operators.h"

namespace windrow {

/// How dropout() drops. A value.
struct Dropout {
  double rate;  ///< the probability; what is kept is divided by 1 - rate
  /// What is dropped together. For rows, a word's embedding is kept or dropped as a whole.
  enum class Of : std::uint8_t { element, row } of = Of::element;
  /// What has a mask of its own. With `sample`, all vertices of a sample drop the same elements, as variational dropout
  /// demands (Gal and Ghahramani 2016). Lazy expressions know no samples: multiply by one dropped expression of ones.
  enum class Mask : std::uint8_t { vertex, sample } mask = Mask::vertex;
};

/// A base class of each type of expression; without state. `Types` has, for one kind of expression:
///
///   Result          what an operator returns
///   First, Second   an expression, as the first and as a further operand
///   Left, Right     the same, or a parameter if the kind allows that
///   Weight          a parameter; also an expression if the kind allows that
///   Indices         an index operand
///   apply()         applies an operator; takes its first operand, its operands, index operands and attributes
///   elementwise()   applies an elementwise operator to two operands; a column is used for all columns of the other
///   dropout()       applies dropout
///   width()         the width of a first or further operand
template <class Types>
class ExpressionOperators {
  using Result = typename Types::Result;
  using First = typename Types::First;
  using Second = typename Types::Second;
  using Left = typename Types::Left;
  using Right = typename Types::Right;
  using Weight = typename Types::Weight;
  using Indices = typename Types::Indices;

  // Elementwise.
  friend Result operator-(const First& x) { return Types::apply(op::neg, x, {x}); }
  friend Result operator*(double factor, const First& x) {
    return Types::apply(op::scale, x, {x}, {}, op::scaled_by(factor));
  }
  friend Result operator*(const First& x, double factor) { return factor * x; }
  /// The product with 1 / divisor.
  friend Result operator/(const First& x, double divisor) { return 1 / divisor * x; }
  friend Result operator/(double dividend, const First& x) {
    return Types::apply(op::reciprocal, x, {x}, {}, op::scaled_by(dividend));
  }
  friend Result operator+(const First& x, double shift) { return scale_shift(x, 1, shift); }
  friend Result operator+(double shift, const First& x) { return scale_shift(x, 1, shift); }
  friend Result operator-(const First& x, double shift) { return scale_shift(x, 1, -shift); }
  friend Result operator-(double shift, const First& x) { return scale_shift(x, -1, shift); }
  /// factor * x + shift.
  friend Result scale_shift(const First& x, double factor, double shift) {
    return Types::apply(op::scale_shift, x, {x}, {}, op::scaled_and_shifted(factor, shift));
  }
  // One operand may have width 1, which is then used for all columns. One may be a parameter of one row; of parameters
  // alone, one may have one row or one column, which is then used for all.
  friend Result operator+(const Left& x, const Right& y) { return Types::elementwise(op::add, x, y); }
  friend Result operator-(const Left& x, const Right& y) { return Types::elementwise(op::sub, x, y); }
  friend Result operator*(const Left& x, const Right& y) { return Types::elementwise(op::mul, x, y); }
  friend Result operator/(const Left& x, const Right& y) { return Types::elementwise(op::div, x, y); }
  friend Result maximum(const Left& x, const Right& y) { return Types::elementwise(op::maximum, x, y); }
  friend Result minimum(const Left& x, const Right& y) { return Types::elementwise(op::minimum, x, y); }
  /// log(exp(x) + exp(y)).
  friend Result log_add_exp(const Left& x, const Right& y) { return Types::elementwise(op::log_add_exp, x, y); }
  friend Result tanh(const First& x) { return Types::apply(op::tanh, x, {x}); }
  friend Result sigmoid(const First& x) { return Types::apply(op::sigmoid, x, {x}); }
  friend Result relu(const First& x) { return Types::apply(op::relu, x, {x}); }
  friend Result exp(const First& x) { return Types::apply(op::exp, x, {x}); }
  friend Result log(const First& x) { return Types::apply(op::log, x, {x}); }
  friend Result square(const First& x) { return Types::apply(op::square, x, {x}); }
  friend Result sqrt(const First& x) { return Types::apply(op::sqrt, x, {x}); }
  friend Result abs(const First& x) { return Types::apply(op::abs, x, {x}); }
  friend Result softplus(const First& x) { return Types::apply(op::softplus, x, {x}); }
  friend Result log_sigmoid(const First& x) { return Types::apply(op::log_sigmoid, x, {x}); }
  /// The approximation by tanh; see op::gelu.
  friend Result gelu(const First& x) { return Types::apply(op::gelu, x, {x}); }
  friend Result silu(const First& x) { return Types::apply(op::silu, x, {x}); }
  friend Result elu(const First& x, double alpha) { return Types::apply(op::elu, x, {x}, {}, op::with_alpha(alpha)); }
  friend Result elu(const First& x) { return elu(x, 1); }
  friend Result leaky_relu(const First& x, double slope) {
    return Types::apply(op::leaky_relu, x, {x}, {}, op::with_slope(slope));
  }
  friend Result leaky_relu(const First& x) { return leaky_relu(x, 0.01); }
  friend Result clamp(const First& x, double low, double high) {
    return Types::apply(op::clamp, x, {x}, {}, op::within(low, high));
  }
  /// x^power, for a power other than 0; see op::pow.
  friend Result pow(const First& x, double power) { return Types::apply(op::pow, x, {x}, {}, op::to_power(power)); }

  // Gradients that are not those of the value.
  /// x, as a constant.
  friend Result stop_gradient(const First& x) { return Types::apply(op::stop_gradient, x, {x}); }
  /// x, whose gradient is -factor times that of the result.
  friend Result reverse_gradient(const First& x, double factor) {
    return Types::apply(op::reverse_gradient, x, {x}, {}, op::scaled_by(factor));
  }
  friend Result reverse_gradient(const First& x) { return reverse_gradient(x, 1); }

  // Products.
  friend Result matmul(const Left& x, const Weight& w) { return Types::apply(op::matmul, x, {x, w}); }
  /// x times w transposed: logits whose classifier is an embedding table, for example.
  friend Result matmul_nt(const Left& x, const Weight& w) { return Types::apply(op::matmul_nt, x, {x, w}); }
  /// log(sum over i of exp(x[i] + w[i][j])).
  friend Result log_matmul(const Left& x, const Weight& w) { return Types::apply(op::log_matmul, x, {x, w}); }
  /// The maximum over i of x[i] + w[i][j].
  friend Result max_matmul(const Left& x, const Weight& w) { return Types::apply(op::max_matmul, x, {x, w}); }
  /// The first i that has the maximum, as a constant.
  friend Result argmax_matmul(const Left& x, const Weight& w) { return Types::apply(op::argmax_matmul, x, {x, w}); }
  friend Result row_dot(const Left& x, const Right& y) { return Types::apply(op::row_dot, x, {x, y}); }
  friend Result mul_columns(const Left& x, const Right& factor) {
    return Types::apply(op::mul_columns, x, {x, factor});
  }
  /// Each row of x and of y contains a matrix. `rows` is the number of rows of the matrices in x; the other sizes
  /// follow from the widths.
  friend Result matmul_each(const First& x, const Second& y, Index rows) {
    return Types::apply(op::matmul_each, x, {x, y}, {}, op::product_by_widths(rows, Types::width(x), Types::width(y)));
  }
  friend Result matmul_each_nt(const First& x, const Second& y, Index rows) {
    return Types::apply(op::matmul_each_nt, x, {x, y}, {},
                        op::product_by_widths(rows, Types::width(x), Types::width(y)));
  }

  // Columns.
  /// Columns [begin, end).
  friend Result slice(const First& x, Index begin, Index end) {
    return Types::apply(op::slice, x, {x}, {}, op::columns(begin, end));
  }
  /// The element of that column; 0 for column -1.
  friend Result pick(const First& x, const Indices& column) { return Types::apply(op::pick, x, {x}, {column}); }
  friend Result row_sum(const First& x) { return Types::apply(op::row_sum, x, {x}); }
  /// The sum over the rows, for values of parameters alone: vertices are not added up.
  friend Result column_sum(const First& x) { return Types::apply(op::column_sum, x, {x}); }
  friend Result row_max(const First& x) { return Types::apply(op::row_max, x, {x}); }
  /// The k largest columns, from the largest on; of equal columns the first one comes first.
  friend Result top_k(const First& x, Index k) { return Types::apply(op::top_k, x, {x}, {}, op::largest(k)); }
  /// x contains rows of `columns` columns: the k largest elements of each column; see op::top_k.
  friend Result top_k(const First& x, Index k, Index columns, op::Order order) {
    return Types::apply(op::top_k, x, {x}, {}, op::largest(k, columns, order));
  }
  /// The numbers of the k largest columns, as floats and constants.
  friend Result arg_top_k(const First& x, Index k) { return Types::apply(op::arg_top_k, x, {x}, {}, op::largest(k)); }
  /// The number of the first column that has the maximum, as a float and a constant.
  friend Result argmax(const First& x) { return arg_top_k(x, 1); }
  /// A column drawn from softmax(x), as a float and a constant. The draw depends on the seed, the site, and the
  /// three keys of the vertex or sample only, so it can be repeated; see op::sample. Divide x by a temperature to
  /// sharpen or to flatten the distribution.
  friend Result sample(const First& x, const Indices& keys, std::uint64_t seed, std::uint32_t site) {
    return Types::apply(op::sample, x, {x}, {keys}, op::drawn_by(seed, site));
  }
  friend Result sample(const First& x, const Indices& keys, std::uint64_t seed) { return sample(x, keys, seed, 0); }
  /// log(sum of exp(x)) over the columns.
  friend Result log_sum_exp(const First& x) { return Types::apply(op::log_sum_exp, x, {x}); }
  friend Result softmax(const First& x) { return Types::apply(op::softmax, x, {x}); }
  friend Result log_softmax(const First& x) { return Types::apply(op::log_softmax, x, {x}); }
  /// Without factors and offsets: write `layer_norm(x) * gain + bias`, with parameters of one row.
  friend Result layer_norm(const First& x, double epsilon) {
    return Types::apply(op::layer_norm, x, {x}, {}, op::with_epsilon(epsilon));
  }
  friend Result layer_norm(const First& x) { return layer_norm(x, 1e-5); }
  friend Result rms_norm(const First& x, double epsilon) {
    return Types::apply(op::rms_norm, x, {x}, {}, op::with_epsilon(epsilon));
  }
  friend Result rms_norm(const First& x) { return rms_norm(x, 1e-5); }
  /// Drops in training; returns x in inference, and for a rate of 0. The mask depends on the seed of the parameters,
  /// the number of the minibatch (Parameters::minibatches()), the sample, the vertex and the place of this call in the
  /// function; in lazy expressions on the graph and the number of such calls since clear(). So neither schedules nor
  /// workers change it, and no two functions draw one mask. Throws MisuseError unless 0 <= rate < 1, and for values of
  /// edges.
  friend Result dropout(const First& x, const Dropout& how) { return Types::dropout(x, how); }
  /// The mask is drawn from three keys per vertex or sample, also in inference; see op::dropout.
  friend Result dropout(const First& x, const Indices& keys, double rate, std::uint64_t seed, std::uint32_t site) {
    return Types::apply(op::dropout, x, {x}, {keys}, op::dropout_by(rate, seed, site));
  }

  // Losses.
  /// One value per vertex or sample; 0 where the label is -1.
  friend Result softmax_cross_entropy(const First& logits, const Indices& label) {
    return Types::apply(op::softmax_cross_entropy, logits, {logits}, {label});
  }
  /// The same with smoothed labels; epsilon is the share of the target that all classes have alike.
  friend Result smoothed_cross_entropy(const First& logits, const Indices& label, double epsilon) {
    return Types::apply(op::smoothed_cross_entropy, logits, {logits}, {label}, op::smoothed_by(epsilon));
  }
  /// By how much the score of the label is less than `margin` above the largest other one; 0 where the label is -1.
  friend Result hinge(const First& scores, const Indices& label, double margin) {
    return Types::apply(op::hinge, scores, {scores}, {label}, op::with_margin(margin));
  }
  friend Result hinge(const First& scores, const Indices& label) { return hinge(scores, label, 1); }
  /// One value per element, for targets within [0, 1]; use its row_sum or mean as a loss.
  friend Result binary_cross_entropy(const Left& logits, const Right& targets) {
    return Types::elementwise(op::binary_cross_entropy, logits, targets);
  }
  friend Result squared_distance(const Left& x, const Right& y) {
    return Types::apply(op::squared_distance, x, {x, y});
  }

  // Images.
  friend Result conv2d(const First& images, const Weight& filters, const op::Window2d& window) {
    return Types::apply(op::conv2d, images, {images, filters}, {}, op::sliding(window));
  }
  friend Result max_pool2d(const First& images, const op::Window2d& window) {
    return Types::apply(op::max_pool2d, images, {images}, {}, op::sliding(window));
  }
  friend Result add_channel_bias(const First& images, const Weight& bias) {
    return Types::apply(op::add_channel_bias, images, {images, bias});
  }
};

/// Declares the functions of a kind of expressions beside the class, so that a call with the namespace finds them, too.
#define WINDROW_DECLARE_EXPRESSION_OPERATORS(Types)                                                                \
  Types::Result scale_shift(const Types::First& x, double factor, double shift);                                   \
  Types::Result maximum(const Types::Left& x, const Types::Right& y);                                              \
  Types::Result minimum(const Types::Left& x, const Types::Right& y);                                              \
  Types::Result log_add_exp(const Types::Left& x, const Types::Right& y);                                          \
  Types::Result tanh(const Types::First& x);                                                                       \
  Types::Result sigmoid(const Types::First& x);                                                                    \
  Types::Result relu(const Types::First& x);                                                                       \
  Types::Result exp(const Types::First& x);                                                                        \
  Types::Result log(const Types::First& x);                                                                        \
  Types::Result square(const Types::First& x);                                                                     \
  Types::Result sqrt(const Types::First& x);                                                                       \
  Types::Result abs(const Types::First& x);                                                                        \
  Types::Result softplus(const Types::First& x);                                                                   \
  Types::Result log_sigmoid(const Types::First& x);                                                                \
  Types::Result gelu(const Types::First& x);                                                                       \
  Types::Result silu(const Types::First& x);                                                                       \
  Types::Result elu(const Types::First& x, double alpha);                                                          \
  Types::Result elu(const Types::First& x);                                                                        \
  Types::Result leaky_relu(const Types::First& x, double slope);                                                   \
  Types::Result leaky_relu(const Types::First& x);                                                                 \
  Types::Result clamp(const Types::First& x, double low, double high);                                             \
  Types::Result pow(const Types::First& x, double power);                                                          \
  Types::Result stop_gradient(const Types::First& x);                                                              \
  Types::Result reverse_gradient(const Types::First& x, double factor);                                            \
  Types::Result reverse_gradient(const Types::First& x);                                                           \
  Types::Result matmul(const Types::Left& x, const Types::Weight& w);                                              \
  Types::Result matmul_nt(const Types::Left& x, const Types::Weight& w);                                           \
  Types::Result log_matmul(const Types::Left& x, const Types::Weight& w);                                          \
  Types::Result max_matmul(const Types::Left& x, const Types::Weight& w);                                          \
  Types::Result argmax_matmul(const Types::Left& x, const Types::Weight& w);                                       \
  Types::Result row_dot(const Types::Left& x, const Types::Right& y);                                              \
  Types::Result mul_columns(const Types::Left& x, const Types::Right& factor);                                     \
  Types::Result matmul_each(const Types::First& x, const Types::Second& y, Index rows);                            \
  Types::Result matmul_each_nt(const Types::First& x, const Types::Second& y, Index rows);                         \
  Types::Result slice(const Types::First& x, Index begin, Index end);                                              \
  Types::Result pick(const Types::First& x, const Types::Indices& column);                                         \
  Types::Result row_sum(const Types::First& x);                                                                    \
  Types::Result column_sum(const Types::First& x);                                                                 \
  Types::Result row_max(const Types::First& x);                                                                    \
  Types::Result top_k(const Types::First& x, Index k);                                                             \
  Types::Result top_k(const Types::First& x, Index k, Index columns, op::Order order);                             \
  Types::Result arg_top_k(const Types::First& x, Index k);                                                         \
  Types::Result argmax(const Types::First& x);                                                                     \
  Types::Result sample(const Types::First& x, const Types::Indices& keys, std::uint64_t seed, std::uint32_t site); \
  Types::Result sample(const Types::First& x, const Types::Indices& keys, std::uint64_t seed);                     \
  Types::Result log_sum_exp(const Types::First& x);                                                                \
  Types::Result softmax(const Types::First& x);                                                                    \
  Types::Result log_softmax(const Types::First& x);                                                                \
  Types::Result layer_norm(const Types::First& x, double epsilon);                                                 \
  Types::Result layer_norm(const Types::First& x);                                                                 \
  Types::Result rms_norm(const Types::First& x, double epsilon);                                                   \
  Types::Result rms_norm(const Types::First& x);                                                                   \
  Types::Result dropout(const Types::First& x, const Dropout& how);                                                \
  Types::Result dropout(const Types::First& x, const Types::Indices& keys, double rate, std::uint64_t seed,        \
                        std::uint32_t site);                                                                       \
  Types::Result softmax_cross_entropy(const Types::First& logits, const Types::Indices& label);                    \
  Types::Result smoothed_cross_entropy(const Types::First& logits, const Types::Indices& label, double epsilon);   \
  Types::Result hinge(const Types::First& scores, const Types::Indices& label, double margin);                     \
  Types::Result hinge(const Types::First& scores, const Types::Indices& label);                                    \
  Types::Result binary_cross_entropy(const Types::Left& logits, const Types::Right& targets);                      \
  Types::Result squared_distance(const Types::Left& x, const Types::Right& y);                                     \
  Types::Result conv2d(const Types::First& images, const Types::Weight& filters, const op::Window2d& window);      \
  Types::Result max_pool2d(const Types::First& images, const op::Window2d& window);                                \
  Types::Result add_channel_bias(const Types::First& images, const Types::Weight& bias)

}  // namespace windrow
