// The reference kernels: the definition of each operator, in double precision and without optimisation.
#include "reference/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "operators/attributes.h"
#include "windrow/ops/operators.h"

namespace windrow {
namespace {

using namespace reference;

template <class F>
void unary(const Call& call, F f) {
  each(call, [&](Index r, Index c) { return f(call.in[0].row(r)[c]); });
}
template <class F>
void binary(const Call& call, F f) {
  each(call, [&](Index r, Index c) { return f(call.in[0].row(r)[c], call.in[1].row(r)[c]); });
}
template <class F>
void ternary(const Call& call, F f) {
  each(call, [&](Index r, Index c) { return f(call.in[0].row(r)[c], call.in[1].row(r)[c], call.in[2].row(r)[c]); });
}

/// x^power, NaN for x below 0 unless the power is whole.
double power_of(double x, double power) {
  return x < 0 && power != std::floor(power) ? std::numeric_limits<double>::quiet_NaN() : std::pow(x, power);
}

/// The argument of tanh in gelu, and its derivative.
double gelu_argument(double x) { return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); }
double gelu_argument_slope(double x) { return std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x); }

void add_activations(KernelTable<double>& table) {
  table.add(op::gelu,
            [](const Call& k) { unary(k, [](double x) { return x / 2 * (1 + std::tanh(gelu_argument(x))); }); });
  table.add(op::silu, [](const Call& k) { unary(k, [](double x) { return x / (1 + std::exp(-x)); }); });
  table.add(op::elu, [](const Call& k) {
    unary(k, [alpha = k.attributes.values[0]](double x) { return x > 0 ? x : alpha * std::expm1(x); });
  });
  table.add(op::leaky_relu, [](const Call& k) {
    unary(k, [slope = k.attributes.values[0]](double x) { return x < 0 ? slope * x : x; });
  });
  table.add(op::clamp, [](const Call& k) {
    unary(k, [&](double x) { return std::clamp(x, k.attributes.values[0], k.attributes.values[1]); });
  });
  table.add(op::pow, [](const Call& k) { unary(k, [&](double x) { return power_of(x, k.attributes.values[0]); }); });
  // Slopes far from 0 are those at a distance at which they are 0 and 1 in double, since 0 * inf is not a number.
  table.add(op::gelu_gradient, [](const Call& k) {
    binary(k, [](double far, double g) {
      const double x = std::clamp(far, -100.0, 100.0);
      const double t = std::tanh(gelu_argument(x));
      return g * ((1 + t) / 2 + x / 2 * (1 - t * t) * gelu_argument_slope(x));
    });
  });
  table.add(op::silu_gradient, [](const Call& k) {
    binary(k, [](double far, double g) {
      const double x = std::clamp(far, -1000.0, 1000.0), s = 1 / (1 + std::exp(-x));
      return g * (s + x * s * (1 - s));
    });
  });
  table.add(op::elu_gradient, [](const Call& k) {
    binary(k, [alpha = k.attributes.values[0]](double x, double g) { return x > 0 ? g : g * alpha * std::exp(x); });
  });
  table.add(op::leaky_relu_gradient, [](const Call& k) {
    binary(k, [slope = k.attributes.values[0]](double x, double g) { return x > 0 ? g : slope * g; });
  });
  table.add(op::clamp_gradient, [](const Call& k) {
    const auto [low, high] = k.attributes.values;
    binary(k, [low = low, high = high](double x, double g) { return low <= x && x <= high ? g : 0; });
  });
  table.add(op::pow_gradient, [](const Call& k) {
    binary(k, [power = k.attributes.values[0]](double x, double g) { return g * power * power_of(x, power - 1); });
  });
}

void add_elementwise(KernelTable<double>& table) {
  table.add(op::add, [](const Call& k) { binary(k, [](double x, double y) { return x + y; }); });
  table.add(op::sub, [](const Call& k) { binary(k, [](double x, double y) { return x - y; }); });
  table.add(op::mul, [](const Call& k) { binary(k, [](double x, double y) { return x * y; }); });
  table.add(op::div, [](const Call& k) { binary(k, [](double x, double y) { return x / y; }); });
  table.add(op::maximum,
            [](const Call& k) { binary(k, [](double x, double y) { return x < y || std::isnan(y) ? y : x; }); });
  table.add(op::minimum,
            [](const Call& k) { binary(k, [](double x, double y) { return y < x || std::isnan(y) ? y : x; }); });
  table.add(op::log_add_exp, [](const Call& k) {
    binary(k, [](double x, double y) { return std::max(x, y) + softplus(x == y ? 0 : -std::abs(x - y)); });
  });
  table.add(op::neg, [](const Call& k) { unary(k, [](double x) { return -x; }); });
  table.add(op::scale, [](const Call& k) { unary(k, [&](double x) { return k.attributes.values[0] * x; }); });
  table.add(op::scale_shift, [](const Call& k) {
    const auto [factor, shift] = k.attributes.values;
    unary(k, [factor = factor, shift = shift](double x) { return factor * x + shift; });
  });
  table.add(op::reciprocal, [](const Call& k) { unary(k, [&](double x) { return k.attributes.values[0] / x; }); });
  table.add(op::tanh, [](const Call& k) { unary(k, [](double x) { return std::tanh(x); }); });
  table.add(op::sigmoid, [](const Call& k) { unary(k, [](double x) { return 1 / (1 + std::exp(-x)); }); });
  table.add(op::relu, [](const Call& k) { unary(k, [](double x) { return std::max(x, 0.0); }); });
  table.add(op::exp, [](const Call& k) { unary(k, [](double x) { return std::exp(x); }); });
  table.add(op::log, [](const Call& k) { unary(k, [](double x) { return std::log(x); }); });
  table.add(op::square, [](const Call& k) { unary(k, [](double x) { return x * x; }); });
  table.add(op::sqrt, [](const Call& k) { unary(k, [](double x) { return std::sqrt(x); }); });
  table.add(op::abs, [](const Call& k) { unary(k, [](double x) { return std::abs(x); }); });
  table.add(op::softplus, [](const Call& k) { unary(k, softplus); });
  table.add(op::log_sigmoid, [](const Call& k) { unary(k, [](double x) { return -softplus(-x); }); });
  add_activations(table);
  table.add(op::stop_gradient, [](const Call& k) { unary(k, [](double x) { return x; }); });
  table.add(op::reverse_gradient, [](const Call& k) { unary(k, [](double x) { return x; }); });
  table.add(op::tanh_gradient, [](const Call& k) { binary(k, [](double y, double g) { return g * (1 - y * y); }); });
  table.add(op::sigmoid_gradient, [](const Call& k) { binary(k, [](double y, double g) { return g * (y - y * y); }); });
  table.add(op::relu_gradient, [](const Call& k) { binary(k, [](double y, double g) { return y <= 0 ? 0 : g; }); });
  table.add(op::square_gradient, [](const Call& k) { binary(k, [](double x, double g) { return 2 * x * g; }); });
  table.add(op::sqrt_gradient, [](const Call& k) { binary(k, [](double y, double g) { return g / (2 * y); }); });
  table.add(op::abs_gradient, [](const Call& k) {
    binary(k, [](double x, double g) { return x > 0 ? g : x < 0 ? -g : 0 * x; });
  });
  table.add(op::softplus_gradient,
            [](const Call& k) { binary(k, [](double x, double g) { return g / (1 + std::exp(-x)); }); });
  table.add(op::log_sigmoid_gradient,
            [](const Call& k) { binary(k, [](double x, double g) { return g / (1 + std::exp(x)); }); });
  table.add(op::log_add_exp_gradient, [](const Call& k) {
    ternary(k, [](double x, double y, double g) {
      const bool no_sum = x == y && x < 0 && std::isinf(x);  // of which nothing has a share
      return g / (1 + std::exp(no_sum ? -x : y - x));
    });
  });
  table.add(op::div_gradient,
            [](const Call& k) { ternary(k, [](double quotient, double y, double g) { return -g * quotient / y; }); });
  table.add(op::maximum_gradient,
            [](const Call& k) { ternary(k, [](double x, double y, double g) { return x < y ? 0 : g; }); });
  table.add(op::maximum_gradient_strict,
            [](const Call& k) { ternary(k, [](double x, double y, double g) { return x > y ? g : 0; }); });
  table.add(op::sgd, [](const Call& k) {
    const auto [rate, decay] = k.attributes.values;
    each(k, [&, rate = rate, decay = decay](Index r, Index c) {
      return -rate * (k.in[0].row(r)[c] + decay * k.out.row(r)[c]);
    });
  });
}

void add_linear(KernelTable<double>& table) {
  table.add(op::matmul, [](const Call& k) {
    const In x = k.in[0], y = k.in[1];
    each(k, [&](Index r, Index c) { return dot(x.row(r), 1, y.data + c, y.stride, x.width); });
  });
  table.add(op::matmul_nt, [](const Call& k) {
    const In x = k.in[0], y = k.in[1];
    each(k, [&](Index r, Index c) { return dot(x.row(r), 1, y.row(c), 1, x.width); });
  });
  table.add(op::matmul_tn, [](const Call& k) {
    const In x = k.in[0], y = k.in[1];
    each(k, [&](Index r, Index c) { return dot(x.data + r, x.stride, y.data + c, y.stride, x.rows); });
  });
  table.add(op::transpose, [](const Call& k) { each(k, [&](Index r, Index c) { return k.in[0].row(c)[r]; }); });
  table.add(op::add_bias,
            [](const Call& k) { each(k, [&](Index r, Index c) { return k.in[0].row(r)[c] + k.in[1].row(0)[c]; }); });
  table.add(op::mul_row,
            [](const Call& k) { each(k, [&](Index r, Index c) { return k.in[0].row(r)[c] * k.in[1].row(0)[c]; }); });
  table.add(op::column_dot, [](const Call& k) {
    const In x = k.in[0], y = k.in[1];
    each(k, [&](Index, Index c) { return dot(x.data + c, x.stride, y.data + c, y.stride, x.rows); });
  });
  table.add(op::column_sum, [](const Call& k) {
    each(k, [&](Index, Index c) {
      double sum = 0;
      for (Index r = 0; r < k.in[0].rows; ++r) sum += k.in[0].row(r)[c];
      return sum;
    });
  });
  table.add(op::row_sum, [](const Call& k) {
    each(k, [&](Index r, Index) {
      double sum = 0;
      for (Index c = 0; c < k.in[0].width; ++c) sum += k.in[0].row(r)[c];
      return sum;
    });
  });
  table.add(op::spread_rows, [](const Call& k) { each(k, [&](Index, Index c) { return k.in[0].row(0)[c]; }); });
  table.add(op::spread_columns, [](const Call& k) { each(k, [&](Index r, Index) { return k.in[0].row(r)[0]; }); });
}

/// The distances between neighbouring elements of a column and of a row, for a matrix of a given width or its
/// transpose.
struct Strides {
  Index row_step, column_step;
};
Strides as_stored(Index width) { return {width, 1}; }
Strides transposed(Index width) { return {1, width}; }

void product_each(const Call& k, Strides x, Strides y) {
  const auto [rows, inner, columns] = product_sizes(k.attributes);
  each(k, [&, inner = inner, columns = columns](Index r, Index c) {
    return dot(k.in[0].row(r) + c / columns * x.row_step, x.column_step, k.in[1].row(r) + c % columns * y.column_step,
               y.row_step, inner);
  });
}

void add_products(KernelTable<double>& table) {
  table.add(op::row_dot, [](const Call& k) {
    each(k, [&](Index r, Index) { return dot(k.in[0].row(r), 1, k.in[1].row(r), 1, k.in[0].width); });
  });
  table.add(op::mul_columns,
            [](const Call& k) { each(k, [&](Index r, Index c) { return k.in[0].row(r)[c] * k.in[1].row(r)[0]; }); });
  table.add(op::matmul_each, [](const Call& k) {
    const ProductSizes s = product_sizes(k.attributes);
    product_each(k, as_stored(s.inner), as_stored(s.columns));
  });
  table.add(op::matmul_each_nt, [](const Call& k) {
    const ProductSizes s = product_sizes(k.attributes);
    product_each(k, as_stored(s.inner), transposed(s.inner));
  });
  table.add(op::matmul_each_tn, [](const Call& k) {
    const ProductSizes s = product_sizes(k.attributes);
    product_each(k, transposed(s.rows), as_stored(s.columns));
  });
}

KernelTable<double> make_reference() {
  KernelTable<double> table;
  add_elementwise(table);
  add_linear(table);
  add_products(table);
  add_rows(table);
  add_images(table);
  add_losses(table);
  add_norms(table);
  add_semirings(table);
  add_top_choices(table);
  add_training_steps(table);
  return table;
}

}  // namespace

const KernelTable<double>& reference_kernels() {
  static const KernelTable<double> table = make_reference();
  return table;
}

}  // namespace windrow
