// The reference kernels of training steps.
#include <limits>

#include "reference.h"
#include "windrow/ops/operators.h"

namespace windrow::reference {
namespace {

/// The numbers of a step, by the members of StepNumbers.
struct Numbers {
  double rate, scale, most, most_norm, penalty, decay, first, second, first_correction, second_correction, epsilon;
};
static_assert(sizeof(Numbers) == StepNumbers::count * sizeof(double));

Numbers numbers_of(In x) {
  Numbers numbers;
  std::copy_n(x.data, StepNumbers::count, &numbers.rate);
  return numbers;
}

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
  v += g * g;
  e.w -= h.rate * g / (std::sqrt(v) + h.epsilon);
}
void rmsprop(const Numbers& h, double g, Element e) {
  double& v = *e.state[0];
  v = h.first * v + (1 - h.first) * g * g;
  e.w -= h.rate * g / (std::sqrt(v) + h.epsilon);
}
void adam(const Numbers& h, double g, Element e) {
  double &m = *e.state[0], &v = *e.state[1];
  m = h.first * m + (1 - h.first) * g;
  v = h.second * v + (1 - h.second) * g * g;
  e.w -= h.rate * (m / h.first_correction) / (std::sqrt(v / h.second_correction) + h.epsilon);
}

template <Rule rule>
void change_row(const Call& k, Index from, Index to) {
  const Numbers h = numbers_of(k.in[1]);
  if (h.scale == 0) return;
  for (Index c = 0; c < k.out.width; ++c) {
    Element e{k.out.row(to)[c], {}};
    for (std::size_t s = 0; s < k.states.size(); ++s) e.state[s] = &k.states[s].row(to)[c];
    const double g = std::clamp(h.scale * k.in[0].row(from)[c], -h.most, h.most) + h.penalty * e.w;
    e.w *= 1 - h.rate * h.decay;
    rule(h, g, e);
  }
}

template <Rule rule>
void add_step(KernelTable<double>& table, const Operator& dense, const Operator& rows) {
  table.add(dense, [](const Call& k) {
    for (Index r = 0; r < k.out.rows; ++r) change_row<rule>(k, r, r);
  });
  table.add(rows, [](const Call& k) {
    Index next = 0;
    for (Index r = 0; r < k.in[0].rows; ++r) {
      const Index row = *k.indices[0].row(r);
      if (row < next || row >= k.out.rows) throw_bad_index(row, r, {next, k.out.rows - 1});
      change_row<rule>(k, r, row);
      next = row + 1;
    }
  });
}

void squared_norm(const Call& k) {
  zero_unless_adding(k);
  for (Index r = 0; r < k.in[0].rows; ++r) k.out.data[0] += dot(k.in[0].row(r), 1, k.in[0].row(r), 1, k.in[0].width);
}

void limit_norm(const Call& k) {
  Numbers h = numbers_of(k.in[0]);
  double sum = 0;
  for (std::size_t i = 1; i < k.in.size(); ++i) sum += *k.in[i].data;
  if (h.scale != 0 && std::isfinite(h.most_norm)) {
    const double norm = std::abs(h.scale) * std::sqrt(sum);
    h.scale *=
        std::isfinite(norm) ? std::min(1.0, h.most_norm / (norm + 1e-6)) : std::numeric_limits<double>::quiet_NaN();
  }
  each(k, [&](Index, Index c) { return (&h.rate)[c]; });
}

}  // namespace

void add_training_steps(KernelTable<double>& table) {
  add_step<sgd>(table, op::sgd_step, op::sgd_step_rows);
  add_step<momentum>(table, op::momentum_step, op::momentum_step_rows);
  add_step<adagrad>(table, op::adagrad_step, op::adagrad_step_rows);
  add_step<rmsprop>(table, op::rmsprop_step, op::rmsprop_step_rows);
  add_step<adam>(table, op::adam_step, op::adam_step_rows);
  table.add(op::squared_norm, squared_norm);
  table.add(op::limit_norm, limit_norm);
}

}  // namespace windrow::reference
