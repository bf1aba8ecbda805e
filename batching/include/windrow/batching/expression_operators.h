// The operators of operators.h, by name, for expressions (expr.h) and lazy expressions (lazy.h).
//
// The lists of functions are below, by what they take. One definition serves both kinds of expressions, so an operator
// is added here only. The functions are friends that argument-dependent lookup finds: call them without a namespace, as
// in `tanh(matmul(x, w))`, or as `windrow::tanh(x)` where a class has a member of that name. For vertex functions all
// throw as apply() of expr.h does; for lazy expressions, as apply() of lazy.h does, with the line of the call.
//
// Operators that differ between the two kinds, such as concat and embedding, are in expr.h and lazy.h.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "windrow/ops/operators.h"

namespace windrow {

/// Options of dropout(). A value.
struct Dropout {
  double rate;  ///< the probability of dropping; kept elements are divided by 1 - rate
  /// The unit that is dropped. With `row`, for example, a word's embedding is kept or dropped as a whole.
  enum class Of : std::uint8_t { element, row } of = Of::element;
  /// Who shares a mask. With `sample`, all vertices of a sample drop the same elements, as variational dropout requires
  /// (Gal and Ghahramani 2016). Lazy expressions know no samples: multiply by one dropped expression of ones.
  enum class Mask : std::uint8_t { vertex, sample } mask = Mask::vertex;
};

/// A list of expressions as an argument: a vector, an array, a span, or expressions in braces. It refers to their
/// elements, so it must not be stored.
template <class Expression>
class ListOf : public std::span<const Expression> {
 public:
  ListOf(std::initializer_list<Expression> list) : std::span<const Expression>(list.begin(), list.size()) {}
  template <std::convertible_to<std::span<const Expression>> List>
  ListOf(const List& list) : std::span<const Expression>(list) {}
};

// The functions that only apply the operator of the same name, as X(types, name), grouped by their parameters.
//
// stop_gradient: x, as a constant. column_sum: the sum over the rows, for values of parameters alone, since vertices
// are not added up. gelu: the approximation by tanh. log_sum_exp: log(sum of exp(x)) over the columns.
// clang-format off
#define WINDROW_FUNCTIONS_OF_A_VALUE(X, T)                                                                   \
  X(T, tanh) X(T, sigmoid) X(T, relu) X(T, exp) X(T, log) X(T, square) X(T, sqrt) X(T, abs) X(T, softplus)   \
  X(T, log_sigmoid) X(T, gelu) X(T, silu) X(T, stop_gradient) X(T, row_sum) X(T, column_sum) X(T, row_max)   \
  X(T, log_sum_exp) X(T, softmax) X(T, log_softmax)
// clang-format on
// matmul_nt: x times w transposed: logits whose classifier is an embedding table, for example. log_matmul: log(sum over
// i of exp(x[i] + w[i][j])). max_matmul: the maximum over i of x[i] + w[i][j]. argmax_matmul: the first i that has the
// maximum, as a constant.
// clang-format off
#define WINDROW_FUNCTIONS_OF_OPERANDS(X, T)                                                                  \
  X(T, matmul) X(T, matmul_nt) X(T, log_matmul) X(T, max_matmul) X(T, argmax_matmul) X(T, row_dot)           \
  X(T, mul_columns) X(T, squared_distance) X(T, add_channel_bias)
// clang-format on
// Elementwise, so one operand may have width 1, as for +. log_add_exp: log(exp(x) + exp(y)). binary_cross_entropy: one
// value per element, for logits and targets within [0, 1]; use its row_sum or mean as a loss.
#define WINDROW_ELEMENTWISE_FUNCTIONS(X, T) X(T, maximum) X(T, minimum) X(T, log_add_exp) X(T, binary_cross_entropy)
// pick: the element of that column; 0 for column -1. softmax_cross_entropy: one value per vertex or sample; 0 where the
// label is -1.
#define WINDROW_FUNCTIONS_OF_AN_INDEX(X, T) X(T, pick) X(T, softmax_cross_entropy)

/// A base class of each type of expression; without state. `Types` has, for one kind of expression:
///
///   Result          what an operator returns
///   Value           an expression
///   Input           the same, or a parameter if the kind allows that
///   Indices         an index operand
///   apply()         applies an operator; takes its first operand, its operands, index operands and attributes
///   elementwise()   applies an elementwise operator to two operands; a column is used for all columns of the other
///   dropout()       applies dropout
///   width()         the width of a value
///
/// Default arguments are where WINDROW_DECLARE_EXPRESSION_OPERATORS declares the functions again.
template <class Types>
class ExpressionOperators {
  using Result = typename Types::Result;
  using Value = typename Types::Value;
  using Input = typename Types::Input;
  using Indices = typename Types::Indices;

#define WINDROW_OF_A_VALUE(T, name) \
  friend Result name(const Value& x) { return T::apply(op::name, x, {x}); }
#define WINDROW_OF_OPERANDS(T, name) \
  friend Result name(const Input& x, const Input& y) { return T::apply(op::name, x, {x, y}); }
#define WINDROW_ELEMENTWISE(T, name) \
  friend Result name(const Input& x, const Input& y) { return T::elementwise(op::name, x, y); }
#define WINDROW_OF_AN_INDEX(T, name) \
  friend Result name(const Value& x, const Indices& index) { return T::apply(op::name, x, {x}, {index}); }
  WINDROW_FUNCTIONS_OF_A_VALUE(WINDROW_OF_A_VALUE, Types)
  WINDROW_FUNCTIONS_OF_OPERANDS(WINDROW_OF_OPERANDS, Types)
  WINDROW_ELEMENTWISE_FUNCTIONS(WINDROW_ELEMENTWISE, Types)
  WINDROW_FUNCTIONS_OF_AN_INDEX(WINDROW_OF_AN_INDEX, Types)
#undef WINDROW_OF_A_VALUE
#undef WINDROW_OF_OPERANDS
#undef WINDROW_ELEMENTWISE
#undef WINDROW_OF_AN_INDEX

  // Elementwise.
  friend Result operator-(const Value& x) { return Types::apply(op::neg, x, {x}); }
  friend Result operator*(double factor, const Value& x) {
    return Types::apply(op::scale, x, {x}, {}, op::scaled_by(factor));
  }
  friend Result operator*(const Value& x, double factor) { return factor * x; }
  /// The product with 1 / divisor.
  friend Result operator/(const Value& x, double divisor) { return 1 / divisor * x; }
  friend Result operator/(double dividend, const Value& x) {
    return Types::apply(op::reciprocal, x, {x}, {}, op::scaled_by(dividend));
  }
  friend Result operator+(const Value& x, double shift) { return scale_shift(x, 1, shift); }
  friend Result operator+(double shift, const Value& x) { return scale_shift(x, 1, shift); }
  friend Result operator-(const Value& x, double shift) { return scale_shift(x, 1, -shift); }
  friend Result operator-(double shift, const Value& x) { return scale_shift(x, -1, shift); }
  /// factor * x + shift.
  friend Result scale_shift(const Value& x, double factor, double shift) {
    return Types::apply(op::scale_shift, x, {x}, {}, op::scaled_and_shifted(factor, shift));
  }
  // One operand may have width 1, which is then used for all columns. One may be a parameter of one row. If both are
  // parameters, one may have one row or one column, which is then used for all.
  friend Result operator+(const Input& x, const Input& y) { return Types::elementwise(op::add, x, y); }
  friend Result operator-(const Input& x, const Input& y) { return Types::elementwise(op::sub, x, y); }
  friend Result operator*(const Input& x, const Input& y) { return Types::elementwise(op::mul, x, y); }
  friend Result operator/(const Input& x, const Input& y) { return Types::elementwise(op::div, x, y); }
  friend Result elu(const Value& x, double alpha) { return Types::apply(op::elu, x, {x}, {}, op::with_alpha(alpha)); }
  friend Result leaky_relu(const Value& x, double slope) {
    return Types::apply(op::leaky_relu, x, {x}, {}, op::with_slope(slope));
  }
  friend Result clamp(const Value& x, double low, double high) {
    return Types::apply(op::clamp, x, {x}, {}, op::within(low, high));
  }
  /// x^power, for a power other than 0; see op::pow.
  friend Result pow(const Value& x, double power) { return Types::apply(op::pow, x, {x}, {}, op::to_power(power)); }

  // Functions with gradients that differ from those of the value.
  /// x, whose gradient is -factor times that of the result.
  friend Result reverse_gradient(const Value& x, double factor) {
    return Types::apply(op::reverse_gradient, x, {x}, {}, op::scaled_by(factor));
  }

  // Products.
  /// Each row of x and of y contains a matrix. `rows` is the number of rows of the matrices in x; the other sizes
  /// follow from the widths.
  friend Result matmul_each(const Value& x, const Value& y, Index rows) {
    return Types::apply(op::matmul_each, x, {x, y}, {}, op::product_by_widths(rows, Types::width(x), Types::width(y)));
  }
  friend Result matmul_each_nt(const Value& x, const Value& y, Index rows) {
    return Types::apply(op::matmul_each_nt, x, {x, y}, {},
                        op::product_by_widths(rows, Types::width(x), Types::width(y)));
  }

  // Columns.
  /// Columns [begin, end) of x.
  friend Result slice(const Value& x, Index begin, Index end) {
    return Types::apply(op::slice, x, {x}, {}, op::columns(begin, end));
  }
  /// The k largest columns, from the largest on; of equal columns the first one comes first.
  friend Result top_k(const Value& x, Index k) { return Types::apply(op::top_k, x, {x}, {}, op::largest(k)); }
  /// x contains rows of `columns` columns: the k largest elements of each column; see op::top_k.
  friend Result top_k(const Value& x, Index k, Index columns, op::Order order) {
    return Types::apply(op::top_k, x, {x}, {}, op::largest(k, columns, order));
  }
  /// The numbers of the k largest columns, as floats and constants.
  friend Result arg_top_k(const Value& x, Index k) { return Types::apply(op::arg_top_k, x, {x}, {}, op::largest(k)); }
  /// The number of the first column that has the maximum, as a float and a constant.
  friend Result argmax(const Value& x) { return arg_top_k(x, 1); }
  /// A column drawn from softmax(x), as a float and a constant. The draw depends on the seed, the site, and the
  /// three keys of the vertex or sample only, so it can be repeated; see op::sample. Divide x by a temperature to
  /// sharpen or to flatten the distribution.
  friend Result sample(const Value& x, const Indices& keys, std::uint64_t seed, std::uint32_t site) {
    return Types::apply(op::sample, x, {x}, {keys}, op::drawn_by(seed, site));
  }
  /// Has no factors and offsets: write `layer_norm(x) * gain + bias`, with parameters of one row.
  friend Result layer_norm(const Value& x, double epsilon) {
    return Types::apply(op::layer_norm, x, {x}, {}, op::with_epsilon(epsilon));
  }
  friend Result rms_norm(const Value& x, double epsilon) {
    return Types::apply(op::rms_norm, x, {x}, {}, op::with_epsilon(epsilon));
  }
  /// Drops in training; returns x in inference, and for a rate of 0. The mask depends on the seed of the parameters,
  /// the number of the minibatch (Parameters::minibatches()), the sample, the vertex and the place of this call in the
  /// function; in lazy expressions on the graph and the number of such calls since clear(). So neither schedules nor
  /// workers change it, and no two functions draw one mask. Throws MisuseError unless 0 <= rate < 1, and for values of
  /// edges.
  friend Result dropout(const Value& x, const Dropout& how) { return Types::dropout(x, how); }
  /// The same: drops single elements, with a mask for each vertex.
  friend Result dropout(const Value& x, double rate) { return Types::dropout(x, Dropout{.rate = rate}); }
  /// The mask is drawn from three keys per vertex or sample, also in inference; see op::dropout.
  friend Result dropout(const Value& x, const Indices& keys, double rate, std::uint64_t seed, std::uint32_t site) {
    return Types::apply(op::dropout, x, {x}, {keys}, op::dropout_by(rate, seed, site));
  }

  // Losses.
  /// The cross entropy with smoothed labels; epsilon is the share of the target that is divided equally among all
  /// classes.
  friend Result smoothed_cross_entropy(const Value& logits, const Indices& label, double epsilon) {
    return Types::apply(op::smoothed_cross_entropy, logits, {logits}, {label}, op::smoothed_by(epsilon));
  }
  /// The hinge loss max(0, margin + largest other score - score of the label); 0 where the label is -1.
  friend Result hinge(const Value& scores, const Indices& label, double margin) {
    return Types::apply(op::hinge, scores, {scores}, {label}, op::with_margin(margin));
  }

  // Images.
  friend Result conv2d(const Value& images, const Input& filters, const op::Window2d& window) {
    return Types::apply(op::conv2d, images, {images, filters}, {}, op::sliding(window));
  }
  friend Result max_pool2d(const Value& images, const op::Window2d& window) {
    return Types::apply(op::max_pool2d, images, {images}, {}, op::sliding(window));
  }
};

/// Declares the functions of a kind of expressions outside the class, so that a qualified call also finds them.
#define WINDROW_DECLARE_OF_A_VALUE(T, name) T::Result name(const T::Value& x);
#define WINDROW_DECLARE_OF_OPERANDS(T, name) T::Result name(const T::Input& x, const T::Input& y);
#define WINDROW_DECLARE_OF_AN_INDEX(T, name) T::Result name(const T::Value& x, const T::Indices& index);
#define WINDROW_DECLARE_EXPRESSION_OPERATORS(Types)                                                                    \
  WINDROW_FUNCTIONS_OF_A_VALUE(WINDROW_DECLARE_OF_A_VALUE, Types)                                                      \
  WINDROW_FUNCTIONS_OF_OPERANDS(WINDROW_DECLARE_OF_OPERANDS, Types)                                                    \
  WINDROW_ELEMENTWISE_FUNCTIONS(WINDROW_DECLARE_OF_OPERANDS, Types)                                                    \
  WINDROW_FUNCTIONS_OF_AN_INDEX(WINDROW_DECLARE_OF_AN_INDEX, Types)                                                    \
  Types::Result scale_shift(const Types::Value& x, double factor, double shift);                                       \
  Types::Result elu(const Types::Value& x, double alpha = 1);                                                          \
  Types::Result leaky_relu(const Types::Value& x, double slope = 0.01);                                                \
  Types::Result clamp(const Types::Value& x, double low, double high);                                                 \
  Types::Result pow(const Types::Value& x, double power);                                                              \
  Types::Result reverse_gradient(const Types::Value& x, double factor = 1);                                            \
  Types::Result matmul_each(const Types::Value& x, const Types::Value& y, Index rows);                                 \
  Types::Result matmul_each_nt(const Types::Value& x, const Types::Value& y, Index rows);                              \
  Types::Result slice(const Types::Value& x, Index begin, Index end);                                                  \
  Types::Result top_k(const Types::Value& x, Index k);                                                                 \
  Types::Result top_k(const Types::Value& x, Index k, Index columns, op::Order order);                                 \
  Types::Result arg_top_k(const Types::Value& x, Index k);                                                             \
  Types::Result argmax(const Types::Value& x);                                                                         \
  Types::Result sample(const Types::Value& x, const Types::Indices& keys, std::uint64_t seed, std::uint32_t site = 0); \
  Types::Result layer_norm(const Types::Value& x, double epsilon = 1e-5);                                              \
  Types::Result rms_norm(const Types::Value& x, double epsilon = 1e-5);                                                \
  Types::Result dropout(const Types::Value& x, const Dropout& how);                                                    \
  Types::Result dropout(const Types::Value& x, double rate);                                                           \
  Types::Result dropout(const Types::Value& x, const Types::Indices& keys, double rate, std::uint64_t seed,            \
                        std::uint32_t site);                                                                           \
  Types::Result smoothed_cross_entropy(const Types::Value& x, const Types::Indices& label, double epsilon);            \
  Types::Result hinge(const Types::Value& scores, const Types::Indices& label, double margin = 1);                     \
  Types::Result conv2d(const Types::Value& images, const Types::Input& filters, const op::Window2d& window);           \
  Types::Result max_pool2d(const Types::Value& images, const op::Window2d& window)

}  // namespace windrow
