// The reference kernels: what each operator means, in double precision and without any thought of speed.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "checks.h"
#include "windrow/ops/kernel.h"
#include "windrow/ops/operators.h"
#include "windrow/ops/philox.h"

namespace windrow {
namespace {

using Call = KernelCall<double>;
using In = Matrix<const double>;
using Out = Matrix<double>;

void zero_unless_adding(const Call& call) {
  if (call.write == Write::add) return;
  for (Index r = 0; r < call.out.rows; ++r) std::fill_n(call.out.row(r), call.out.width, 0.0);
}

/// out(r, c) += value(r, c) for each element. The value is taken before the result changes, which may be an operand.
template <class Value>
void each(const Call& call, Value value) {
  for (Index r = 0; r < call.out.rows; ++r) {
    for (Index c = 0; c < call.out.width; ++c) {
      const double v = value(r, c);
      double& to = call.out.row(r)[c];
      to = call.write == Write::add ? to + v : v;
    }
  }
}

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

void add_elementwise(KernelTable<double>& table) {
  table.add(op::add, [](const Call& k) { binary(k, [](double x, double y) { return x + y; }); });
  table.add(op::sub, [](const Call& k) { binary(k, [](double x, double y) { return x - y; }); });
  table.add(op::mul, [](const Call& k) { binary(k, [](double x, double y) { return x * y; }); });
  table.add(op::div, [](const Call& k) { binary(k, [](double x, double y) { return x / y; }); });
  table.add(op::maximum,
            [](const Call& k) { binary(k, [](double x, double y) { return x < y || std::isnan(y) ? y : x; }); });
  table.add(op::neg, [](const Call& k) { unary(k, [](double x) { return -x; }); });
  table.add(op::scale, [](const Call& k) { unary(k, [&](double x) { return k.attributes.values[0] * x; }); });
  table.add(op::tanh, [](const Call& k) { unary(k, [](double x) { return std::tanh(x); }); });
  table.add(op::sigmoid, [](const Call& k) { unary(k, [](double x) { return 1 / (1 + std::exp(-x)); }); });
  table.add(op::relu, [](const Call& k) { unary(k, [](double x) { return std::max(x, 0.0); }); });
  table.add(op::exp, [](const Call& k) { unary(k, [](double x) { return std::exp(x); }); });
  table.add(op::log, [](const Call& k) { unary(k, [](double x) { return std::log(x); }); });
  table.add(op::square, [](const Call& k) { unary(k, [](double x) { return x * x; }); });
  table.add(op::tanh_gradient, [](const Call& k) { binary(k, [](double y, double g) { return g * (1 - y * y); }); });
  table.add(op::sigmoid_gradient, [](const Call& k) { binary(k, [](double y, double g) { return g * y * (1 - y); }); });
  table.add(op::relu_gradient, [](const Call& k) { binary(k, [](double y, double g) { return y <= 0 ? 0 : g; }); });
  table.add(op::square_gradient, [](const Call& k) { binary(k, [](double x, double g) { return 2 * x * g; }); });
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

double dot(const double* x, Index x_step, const double* y, Index y_step, Index n) {
  double sum = 0;
  for (Index i = 0; i < n; ++i) sum += x[i * x_step] * y[i * y_step];
  return sum;
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

void gather(const Call& k) {
  each(k, [&](Index r, Index c) { return k.in[0].row(checked_row(k.indices[0], r, k.in[0].rows))[c]; });
}

void scatter(const Call& k, double factor) {
  for (Index r = 0; r < k.in[0].rows; ++r) {
    double* to = k.out.row(checked_row(k.indices[0], r, k.out.rows));
    for (Index c = 0; c < k.out.width; ++c) to[c] += factor * k.in[0].row(r)[c];
  }
}

void add_rows(KernelTable<double>& table) {
  table.add(op::gather_rows, gather);
  table.add(op::embedding, gather);
  table.add(op::scatter_rows, [](const Call& k) {
    zero_unless_adding(k);
    scatter(k, 1);
  });
  table.add(op::sgd_rows, [](const Call& k) { scatter(k, -k.attributes.values[0]); });
  table.add(op::concat, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      std::size_t part = 0;
      while (c >= k.in[part].width) c -= k.in[part++].width;
      return k.in[part].row(r)[c];
    });
  });
  table.add(op::slice, [](const Call& k) {
    each(k, [&](Index r, Index c) { return k.in[0].row(r)[k.attributes.sizes[0] + c]; });
  });
  table.add(op::place, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      const Index from = c - k.attributes.sizes[0];
      return 0 <= from && from < k.in[0].width ? k.in[0].row(r)[from] : 0.0;
    });
  });
}

/// out(r, c) += reduce(column c of x, begin and end of segment r).
template <class Reduce>
void segments(const Call& k, Reduce reduce) {
  each(k, [&](Index r, Index c) {
    const auto [first, last] = checked_segment(k.indices[0], r, k.in[0].rows);
    return first == last ? 0.0 : reduce(k.in[0], c, first, last);
  });
}

double sum_of(In x, Index c, Index first, Index last) {
  double sum = 0;
  for (Index r = first; r < last; ++r) sum += x.row(r)[c];
  return sum;
}

double maximum_of(In x, Index c, Index first, Index last) {
  double top = x.row(first)[c];
  for (Index r = first; r < last; ++r) top = std::isnan(top) || x.row(r)[c] <= top ? top : x.row(r)[c];
  return top;
}

enum class Share { whole, mean };

void spread(const Call& k, Share share) {
  zero_unless_adding(k);
  for (Index r = 0; r < k.in[0].rows; ++r) {
    const auto [first, last] = checked_segment(k.indices[0], r, k.out.rows);
    for (Index to = first; to < last; ++to) {
      const double parts = share == Share::mean ? static_cast<double>(last - first) : 1;
      for (Index c = 0; c < k.out.width; ++c) k.out.row(to)[c] += k.in[0].row(r)[c] / parts;
    }
  }
}

void add_segments(KernelTable<double>& table) {
  table.add(op::segment_sum, [](const Call& k) { segments(k, sum_of); });
  table.add(op::segment_mean, [](const Call& k) {
    segments(k, [](In x, Index c, Index b, Index e) { return sum_of(x, c, b, e) / static_cast<double>(e - b); });
  });
  table.add(op::segment_max, [](const Call& k) { segments(k, maximum_of); });
  table.add(op::segment_spread, [](const Call& k) { spread(k, Share::whole); });
  table.add(op::segment_spread_mean, [](const Call& k) { spread(k, Share::mean); });
  table.add(op::segment_max_gradient, [](const Call& k) {
    zero_unless_adding(k);
    for (Index r = 0; r < k.in[1].rows; ++r) {
      const auto [first, last] = checked_segment(k.indices[0], r, k.in[0].rows);
      for (Index c = 0; c < k.out.width && first < last; ++c) {
        Index to = first;
        const double top = maximum_of(k.in[0], c, first, last);
        while (std::isnan(top) ? !std::isnan(k.in[0].row(to)[c]) : k.in[0].row(to)[c] != top) ++to;
        k.out.row(to)[c] += k.in[1].row(r)[c];
      }
    }
  });
}

/// log(sum of exp) of a row.
double log_sum_exp(const double* x, Index n) {
  const double top = *std::max_element(x, x + n);
  double sum = 0;
  for (Index c = 0; c < n; ++c) sum += std::exp(x[c] - top);
  return top + std::log(sum);
}

void add_losses(KernelTable<double>& table) {
  table.add(op::softmax, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      const double* x = k.in[0].row(r);
      return std::exp(x[c] - log_sum_exp(x, k.in[0].width));
    });
  });
  table.add(op::softmax_gradient, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      const double *y = k.in[0].row(r), *g = k.in[1].row(r);
      return y[c] * (g[c] - dot(y, 1, g, 1, k.in[0].width));
    });
  });
  table.add(op::softmax_cross_entropy, [](const Call& k) {
    each(k, [&](Index r, Index) {
      const Index label = checked_label(k.indices[0], r, k.in[0].width);
      const double* x = k.in[0].row(r);
      return label < 0 ? 0.0 : log_sum_exp(x, k.in[0].width) - x[label];
    });
  });
  table.add(op::softmax_cross_entropy_gradient, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      const Index label = checked_label(k.indices[0], r, k.in[0].width);
      const double *x = k.in[0].row(r), g = k.in[1].row(r)[0];
      return label < 0 ? 0.0 : g * (std::exp(x[c] - log_sum_exp(x, k.in[0].width)) - (c == label ? 1 : 0));
    });
  });
  table.add(op::dropout, [](const Call& k) {
    const double rate = k.attributes.values[0];
    const auto [seed, site] = k.attributes.sizes;
    const PhiloxKey key = philox_key(static_cast<std::uint64_t>(seed));
    each(k, [&, site = site](Index r, Index c) {
      PhiloxCounter counter = {static_cast<std::uint32_t>(site * 65536 + c / 4)};
      for (std::size_t i = 0; i < 3; ++i) counter[i + 1] = static_cast<std::uint32_t>(k.indices[0].row(r)[i]);
      const bool dropped = unit_uniform(philox(counter, key)[static_cast<std::size_t>(c % 4)]) < rate;
      return dropped ? 0.0 : k.in[0].row(r)[c] / (1 - rate);
    });
  });
}

KernelTable<double> make_reference() {
  KernelTable<double> table;
  add_elementwise(table);
  add_linear(table);
  add_rows(table);
  add_segments(table);
  add_losses(table);
  return table;
}

}  // namespace

const KernelTable<double>& reference_kernels() {
  static const KernelTable<double> table = make_reference();
  return table;
}

}  // namespace windrow
