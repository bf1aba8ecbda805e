// The reference kernels of training steps.
#include <limits>

#include "reference/reference.h"
#include "windrow/ops/operators.h"

namespace windrow::reference {
namespace {

/// The numbers of a step, by the members of StepNumbers.
struct Numbers {
  double rate, scale, most, most_norm, penalty, decay, first, second, first_correction, second_correction, epsilon,
      scale_again, first_tail, second_tail;

  double whole_first() const { return first + first_tail; }
  double whole_second() const { return second + second_tail; }
};
static_assert(sizeof(Numbers) == StepNumbers::count * sizeof(double));

Numbers numbers_of(In x, Index row = 0) {
  Numbers numbers;
  std::copy_n(x.row(row), StepNumbers::count, &numbers.rate);
  return numbers;
}

/// A gradient that is squared.
double bounded(double g) { return std::clamp(g, -0x1p63, 0x1p63) + 0 * g; }

/// An element of the result and of the states.
struct Element {
  double& w;
  double* state[2];
};
using Rule = void (*)(const Numbers& h, double g, Element e);

void sgd(const Numbers& h, double g, Element e) { e.w -= h.rate * g; }
void momentum(const Numbers& h, double g, Element e) {
  double& m = *e.state[0];
  m = h.first * m + g;
  e.w -= h.rate * (h.second == 1 ? g + h.first * m : m);
}
void adagrad(const Numbers& h, double g, Element e) {
  double& v = *e.state[0];
  v = std::min(v + g * g, static_cast<double>(std::numeric_limits<float>::max()));
  e.w -= h.rate * g / (std::sqrt(v) + h.epsilon);
}
void rmsprop(const Numbers& h, double g, Element e) {
  double& v = *e.state[0];
  const double first = h.whole_first();
  v = first * v + (1 - first) * g * g;
  e.w -= h.rate * g / (std::sqrt(v) + h.epsilon);
}
void adam(const Numbers& h, double g, Element e) {
  double &m = *e.state[0], &v = *e.state[1];
  const double first = h.whole_first(), second = h.whole_second();
  m = first * m + (1 - first) * g;
  v = second * v + (1 - second) * g * g;
  e.w -= h.rate * (m / h.first_correction) / (std::sqrt(v / h.second_correction) + h.epsilon);
}

template <Rule rule>
void change_row(const Call& k, Index from, Index to) {
  Numbers h = numbers_of(k.in[1]);
  if (h.scale == 0) return;
  if (k.in.size() == 3) {
    const double steps = *k.in[2].row(to);
    h.first_correction = 1 - std::pow(h.whole_first(), steps);
    h.second_correction = 1 - std::pow(h.whole_second(), steps);
  }
  for (Index c = 0; c < k.out.width; ++c) {
    Element e{k.out.row(to)[c], {}};
    for (std::size_t s = 0; s < k.states.size(); ++s) e.state[s] = &k.states[s].row(to)[c];
    const double x = std::clamp(h.scale * h.scale_again * k.in[0].row(from)[c], -h.most, h.most);
    constexpr bool squares = rule != sgd && rule != momentum;
    const double g = (squares ? bounded(x) : x) + h.penalty * e.w;
    e.w *= 1 - h.rate * h.decay;
    rule(h, g, e);
  }
}

/// Calls body(r, to) for row r of the indices, which names row `to` of the result.
template <class Body>
void each_row(const Call& k, const Body& body) {
  Index next = 0;
  for (Index r = 0; r < k.indices[0].rows; ++r) {
    const Index row = *k.indices[0].row(r);
    if (row < next || row >= k.out.rows) throw_bad_index(row, r, {next, k.out.rows - 1});
    body(r, row);
    next = row + 1;
  }
}

template <Rule rule>
void add_step(KernelTable<double>& table, const Operator& dense, const Operator& rows) {
  table.add(dense, [](const Call& k) {
    for (Index r = 0; r < k.out.rows; ++r) change_row<rule>(k, r, r);
  });
  table.add(rows, [](const Call& k) { each_row(k, [&](Index r, Index to) { change_row<rule>(k, r, to); }); });
}

void count_step_rows(const Call& k) {
  const bool skipped = numbers_of(k.in[0]).scale == 0;
  each_row(k, [&](Index, Index to) { *k.out.row(to) += skipped ? 0 : 1; });
}

void squared_norm(const Call& k) {
  zero_unless_adding(k);
  for (Index r = 0; r < k.in[0].rows; ++r) {
    const double square = dot(k.in[0].row(r), 1, k.in[0].row(r), 1, k.in[0].width);
    k.out.data[0] += square;
    k.out.data[1] += square * 0x1p-192;
  }
}

void limit_norm(const Call& k) {
  double sum = 0;
  for (std::size_t i = 1; i < k.in.size(); ++i) {
    const double* const norm = k.in[i].data;
    sum += k.in[i].width == 2 && !std::isfinite(norm[0]) ? norm[1] * 0x1p192 : norm[0];
  }
  each(k, [&](Index r, Index c) {
    Numbers h = numbers_of(k.in[0], r);
    if (h.scale != 0 && std::isfinite(h.most_norm)) {
      const double norm = std::abs(h.scale * h.scale_again) * std::sqrt(sum);
      const double factor =
          std::isfinite(norm) ? std::min(1.0, h.most_norm / (norm + 1e-6)) : std::numeric_limits<double>::quiet_NaN();
      h.scale *= factor;
      if (const double all = std::abs(h.scale * h.scale_again); all < 0x1p-100) {
        h.scale = std::copysign(std::sqrt(all), h.scale);
        h.scale_again = std::sqrt(all);
      }
    }
    return (&h.rate)[c];
  });
}

}  // namespace

void add_training_steps(KernelTable<double>& table) {
  add_step<sgd>(table, op::sgd_step, op::sgd_step_rows);
  add_step<momentum>(table, op::momentum_step, op::momentum_step_rows);
  add_step<adagrad>(table, op::adagrad_step, op::adagrad_step_rows);
  add_step<rmsprop>(table, op::rmsprop_step, op::rmsprop_step_rows);
  add_step<adam>(table, op::adam_step, op::adam_step_rows);
  table.add(op::count_step_rows, count_step_rows);
  table.add(op::squared_norm, squared_norm);
  table.add(op::limit_norm, limit_norm);
}

}  // namespace windrow::reference
