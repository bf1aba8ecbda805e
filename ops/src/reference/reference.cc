// The reference kernels: the definition of each operator, in double precision and without optimisation.
#include "reference/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>

#include "operators/attributes.h"
#include "windrow/ops/operators.h"

namespace windrow {
namespace {

using namespace reference;

/// The values of the attributes.
using Constants = std::array<double, 2>;

template <class F, class... X>
constexpr bool takes = std::is_invocable_v<F, X...> || std::is_invocable_v<F, Constants, X...>;

/// Adds kernels of elementwise operators: functions of the operands' elements, and of the attributes before them.
class AddElementwise {
 public:
  explicit AddElementwise(KernelTable<double>& table) : table_(table) {}

  template <class F>
  void operator()(const Operator& op, F) const {
    table_.add(op, [](const Call& k) {
      const auto f = [&](auto... x) {
        if constexpr (std::is_invocable_v<F, Constants, decltype(x)...>) {
          return F()(k.attributes.values, x...);
        } else {
          return F()(x...);
        }
      };
      each(k, [&](Index r, Index c) {
        const auto at = [&](std::size_t operand) { return k.in[operand].row(r)[c]; };
        if constexpr (takes<F, double>) return f(at(0));
        if constexpr (takes<F, double, double>) return f(at(0), at(1));
        if constexpr (takes<F, double, double, double>) return f(at(0), at(1), at(2));
      });
    });
  }

 private:
  KernelTable<double>& table_;
};

/// x^power, NaN for x below 0 unless the power is whole.
double power_of(double x, double power) {
  return x < 0 && power != std::floor(power) ? std::numeric_limits<double>::quiet_NaN() : std::pow(x, power);
}

/// The argument of tanh in gelu, and its derivative.
double gelu_argument(double x) { return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); }
double gelu_argument_slope(double x) { return std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x); }

void add_activations(const AddElementwise& add) {
  add(op::gelu, [](double x) { return x / 2 * (1 + std::tanh(gelu_argument(x))); });
  add(op::silu, [](double x) { return x / (1 + std::exp(-x)); });
  add(op::elu, [](Constants a, double x) { return x > 0 ? x : a[0] * std::expm1(x); });
  add(op::leaky_relu, [](Constants a, double x) { return x < 0 ? a[0] * x : x; });
  add(op::clamp, [](Constants a, double x) { return std::clamp(x, a[0], a[1]); });
  add(op::pow, [](Constants a, double x) { return power_of(x, a[0]); });
  // Far from 0, x is replaced by a value where the slopes are 0 and 1 in double: for infinite x they would be 0 * inf.
  add(op::gelu_gradient, [](double far, double g) {
    const double x = std::clamp(far, -100.0, 100.0);
    const double t = std::tanh(gelu_argument(x));
    return g * ((1 + t) / 2 + x / 2 * (1 - t * t) * gelu_argument_slope(x));
  });
  add(op::silu_gradient, [](double far, double g) {
    const double x = std::clamp(far, -1000.0, 1000.0), s = 1 / (1 + std::exp(-x));
    return g * (s + x * s * (1 - s));
  });
  add(op::elu_gradient, [](Constants a, double x, double g) { return x > 0 ? g : g * a[0] * std::exp(x); });
  add(op::leaky_relu_gradient, [](Constants a, double x, double g) { return x > 0 ? g : a[0] * g; });
  add(op::clamp_gradient, [](Constants a, double x, double g) { return a[0] <= x && x <= a[1] ? g : 0; });
  add(op::pow_gradient, [](Constants a, double x, double g) { return g * a[0] * power_of(x, a[0] - 1); });
}

void add_elementwise(KernelTable<double>& table) {
  const AddElementwise add(table);
  add(op::add, [](double x, double y) { return x + y; });
  add(op::sub, [](double x, double y) { return x - y; });
  add(op::mul, [](double x, double y) { return x * y; });
  add(op::div, [](double x, double y) { return x / y; });
  add(op::maximum, [](double x, double y) { return x < y || std::isnan(y) ? y : x; });
  add(op::minimum, [](double x, double y) { return y < x || std::isnan(y) ? y : x; });
  add(op::log_add_exp, [](double x, double y) { return std::max(x, y) + softplus(x == y ? 0 : -std::abs(x - y)); });
  add(op::neg, [](double x) { return -x; });
  add(op::scale, [](Constants a, double x) { return a[0] * x; });
  add(op::scale_shift, [](Constants a, double x) { return a[0] * x + a[1]; });
  add(op::reciprocal, [](Constants a, double x) { return a[0] / x; });
  add(op::tanh, [](double x) { return std::tanh(x); });
  add(op::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); });
  add(op::relu, [](double x) { return std::max(x, 0.0); });
  add(op::exp, [](double x) { return std::exp(x); });
  add(op::log, [](double x) { return std::log(x); });
  add(op::square, [](double x) { return x * x; });
  add(op::sqrt, [](double x) { return std::sqrt(x); });
  add(op::abs, [](double x) { return std::abs(x); });
  add(op::softplus, [](double x) { return softplus(x); });
  add(op::log_sigmoid, [](double x) { return -softplus(-x); });
  add_activations(add);
  add(op::stop_gradient, [](double x) { return x; });
  add(op::reverse_gradient, [](double x) { return x; });
  add(op::tanh_gradient, [](double y, double g) { return g * (1 - y * y); });
  add(op::sigmoid_gradient, [](double y, double g) { return g * (y - y * y); });
  add(op::relu_gradient, [](double y, double g) { return y <= 0 ? 0 : g; });
  add(op::square_gradient, [](double x, double g) { return 2 * x * g; });
  add(op::sqrt_gradient, [](double y, double g) { return g / (2 * y); });
  add(op::abs_gradient, [](double x, double g) { return x > 0 ? g : x < 0 ? -g : 0 * x; });
  add(op::softplus_gradient, [](double x, double g) { return g / (1 + std::exp(-x)); });
  add(op::log_sigmoid_gradient, [](double x, double g) { return g / (1 + std::exp(x)); });
  add(op::log_add_exp_gradient, [](double x, double y, double g) {
    const bool no_sum = x == y && x < 0 && std::isinf(x);  // then both gradients are 0
    return g / (1 + std::exp(no_sum ? -x : y - x));
  });
  add(op::div_gradient, [](double quotient, double y, double g) { return -g * quotient / y; });
  add(op::maximum_gradient, [](double x, double y, double g) { return x < y ? 0 : g; });
  add(op::maximum_gradient_strict, [](double x, double y, double g) { return x > y ? g : 0; });
  add(op::binary_cross_entropy_gradient, [](double x, double target, double g) {
    return g * ((1 - target) / (1 + std::exp(-x)) - target / (1 + std::exp(x)));
  });
  add(op::binary_cross_entropy_target_gradient, [](double x, double g) { return -x * g; });
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
    each(k, [&](Index, Index c) { return sum(0, k.in[0].rows, [&](Index r) { return k.in[0].row(r)[c]; }); });
  });
  table.add(op::row_sum, [](const Call& k) {
    each(k, [&](Index r, Index) { return sum(0, k.in[0].width, [&](Index c) { return k.in[0].row(r)[c]; }); });
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
