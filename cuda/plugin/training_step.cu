// The kernels of training steps.
#include <cmath>

#include "kernel_call.h"
#include "windrow/ops/step_numbers.h"

namespace windrow::cuda {
namespace {

/// The numbers of a step, in device memory, by the members of StepNumbers.
struct Numbers {
  const float* row;

  WINDROW_ON_DEVICE StepNumbers read() const {
    StepNumbers h;
    float* const to = &h.rate;
    for (int i = 0; i < StepNumbers::count; ++i) to[i] = row[i];
    return h;
  }
  template <class A>
  void accesses(A& to) const {
    to.reads(row, StepNumbers::count);
  }
};

// A rule returns what to subtract from the value, and updates the states.
struct SgdRule {
  static constexpr const char *name = "sgd_step", *name_of_rows = "sgd_step_rows";
  static constexpr int states = 0;
  WINDROW_ON_DEVICE static float change(const StepNumbers& h, float g, float*) { return h.rate * g; }
};
struct MomentumRule {
  static constexpr const char *name = "momentum_step", *name_of_rows = "momentum_step_rows";
  static constexpr int states = 1;
  WINDROW_ON_DEVICE static float change(const StepNumbers& h, float g, float* state) {
    state[0] = h.first * state[0] + g;
    return h.rate * (h.second == 1 ? g + h.first * state[0] : state[0]);
  }
};
struct AdagradRule {
  static constexpr const char *name = "adagrad_step", *name_of_rows = "adagrad_step_rows";
  static constexpr int states = 1;
  WINDROW_ON_DEVICE static float change(const StepNumbers& h, float g, float* state) {
    state[0] += g * g;
    return h.rate * g / (std::sqrt(state[0]) + h.epsilon);
  }
};
struct RmspropRule {
  static constexpr const char *name = "rmsprop_step", *name_of_rows = "rmsprop_step_rows";
  static constexpr int states = 1;
  WINDROW_ON_DEVICE static float change(const StepNumbers& h, float g, float* state) {
    state[0] = h.first * state[0] + (1 - h.first) * g * g;
    return h.rate * g / (std::sqrt(state[0]) + h.epsilon);
  }
};
struct AdamRule {
  static constexpr const char *name = "adam_step", *name_of_rows = "adam_step_rows";
  static constexpr int states = 2;
  WINDROW_ON_DEVICE static float change(const StepNumbers& h, float g, float* state) {
    state[0] = h.first * state[0] + (1 - h.first) * g;
    state[1] = h.second * state[1] + (1 - h.second) * g * g;
    const float root = std::sqrt(state[1]) / std::sqrt(h.second_correction) + h.epsilon;
    return h.rate / h.first_correction * state[0] / root;
  }
};

/// What is changed by a step: the value, and the states of the rule.
template <class Rule>
struct Changed {
  Out value;
  Out states[Rule::states + 1];

  WINDROW_ON_DEVICE void change(const StepNumbers& h, float x, Index r, Index c) const {
    float kept[Rule::states + 1];
    for (int s = 0; s < Rule::states; ++s) kept[s] = at(states[s], r, c);
    float& w = at(value, r, c);
    const float scaled = h.scale * x;  // a NaN stays one
    const float clipped = scaled > h.most ? h.most : scaled < -h.most ? -h.most : scaled;
    const float step = Rule::change(h, clipped + h.penalty * w, kept);
    w = w * (1 - h.rate * h.decay) - step;
    for (int s = 0; s < Rule::states; ++s) at(states[s], r, c) = kept[s];
  }
  template <class A>
  void accesses(A& to) const {
    to.writes(value);
    for (int s = 0; s < Rule::states; ++s) to.writes(states[s]);
  }
};

template <class Rule>
struct Step {
  static constexpr const char* name = Rule::name;
  In x;
  Numbers numbers;
  Changed<Rule> changed;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    const StepNumbers h = numbers.read();
    if (h.scale == 0) return;
    if (x.rows == 1) {  // without a division
      for_all(team, x.width, [&](Index c) { changed.change(h, at(x, 0, c), 0, c); });
    } else {
      for_elements(team, x.rows, x.width, [&](Index r, Index c) { changed.change(h, at(x, r, c), r, c); });
    }
  }
  template <class A>
  void accesses(A& to) const {
    to.reads(x);
    numbers.accesses(to);
    changed.accesses(to);
  }
};

/// Of bad indices that name one row more than once, the first one counts.
template <class Rule>
struct StepRows {
  static constexpr const char* name = Rule::name_of_rows;
  In x;
  Numbers numbers;
  Indices rows;
  Changed<Rule> changed;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    const StepNumbers h = numbers.read();
    if (h.scale == 0) return;
    for_elements(team, x.rows, x.width, [&](Index r, Index c) {
      const Index row = at(rows, r, 0);
      if (within(row, changed.value.rows) && place_in(rows, row) == r) changed.change(h, at(x, r, c), row, c);
    });
  }
  template <class A>
  void accesses(A& to) const {
    to.reads(x);
    numbers.accesses(to);
    to.reads(rows);
    changed.accesses(to);
  }
};

/// A matrix as one row, if none of those that belong together has gaps.
template <class T>
Matrix<T> flat(const Matrix<T>& matrix, bool dense) {
  const Index elements = matrix.rows * matrix.width;
  return dense && elements > 0 ? Matrix<T>{matrix.data, 1, elements, elements} : matrix;
}

template <class Rule>
int run_step(const Call& call, const Queue& queue) {
  bool dense = call.out.dense() && call.in[0].dense();
  for (const Out& state : call.states) dense = dense && state.dense();
  Step<Rule> step{flat(call.in[0], dense), {call.in[1].data}, {flat(call.out, dense), {}}};
  for (int s = 0; s < Rule::states; ++s) step.changed.states[s] = flat(call.states[static_cast<std::size_t>(s)], dense);
  return launch(queue, shape_for_elements(queue, step.x.rows * step.x.width), step);
}

template <class Rule>
int run_step_rows(const Call& call, const Queue& queue) {
  StepRows<Rule> step{call.in[0], {call.in[1].data}, call.indices[0], {call.out, {}}};
  for (int s = 0; s < Rule::states; ++s) step.changed.states[s] = call.states[static_cast<std::size_t>(s)];
  return launch(queue, shape_for_elements(queue, step.x.rows * step.x.width), step);
}

struct Square {
  static constexpr const char* name = "squared_norm";
  WINDROW_ON_DEVICE static float of(float x) { return x * x; }
};
struct SumOfSquares {
  static constexpr const char* name = "squared_norm_sum";
  WINDROW_ON_DEVICE static float of(float x) { return x; }
};

/// Element p of the result is the sum of the p-th `part` elements. Each is added up by one team, so the order depends
/// on nothing but the shape.
template <class Value>
struct SumElements {
  static constexpr const char* name = Value::name;
  In x;
  Out out;  ///< one row
  Index part;
  bool add;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    const Index count = x.rows * x.width;
    for (Index p = team.index(); p < out.width; p += team.count()) {
      const Index first = p * part, last = first + part < count ? first + part : count;
      auto sums = team.template values<float>();
      team.each([&](int thread) {
        LongSum sum;
        for (Index i = first + thread; i < last; i += team.threads()) {
          const Index r = i / x.width;
          sum += Value::of(at(x, r, i - r * x.width));
        }
        sums[thread] = sum;
      });
      const float sum = team.sum(sums);
      team.each([&](int thread) {
        if (thread == 0) write(at(out, 0, p), sum, add);
      });
    }
  }
  template <class A>
  void accesses(A& to) const {
    to.reads(x);
    to.writes(out);
  }
};

struct BandsOfElements {
  Index count, elements;
};
BandsOfElements bands_of_norm(const In& x) {
  constexpr Index most_sums = 1024;
  const Index elements = x.rows * x.width, part = std::max(parts_of(elements, most_sums), Index{most_threads} * 4);
  return {std::max<Index>(parts_of(elements, part), 1), part};
}

template <class Value>
int sum_elements(const Queue& queue, const SumElements<Value>& sum) {
  return launch(queue, {sum.out.width}, sum);
}

struct LimitNorm {
  static constexpr const char* name = "limit_norm";
  static constexpr int most_norms = 128;
  Numbers numbers;
  const float* norms[most_norms];
  int count;
  const float* before;  ///< the sum of the norms before; null if there were none
  float* sum;           ///< where to leave it for the next kernel; null for the last one
  Out out;
  bool add;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    team.each([&](int thread) {
      if (team.index() != 0 || thread != 0) return;
      float all = before == nullptr ? 0 : *before;
      for (int i = 0; i < count; ++i) all += *norms[i];
      if (sum != nullptr) {
        *sum = all;
        return;
      }
      StepNumbers h = numbers.read();
      if (h.scale != 0 && h.most_norm <= std::numeric_limits<float>::max()) {
        const float norm = std::fabs(h.scale) * std::sqrt(all);
        const float factor = h.most_norm / (norm + 1e-6f);
        const bool finite = norm <= std::numeric_limits<float>::max();
        h.scale *= !finite ? not_a_number : factor < 1 ? factor : 1;
      }
      for (Index c = 0; c < StepNumbers::count; ++c) write(at(out, 0, c), (&h.rate)[c], add);
    });
  }
  template <class A>
  void accesses(A& to) const {
    numbers.accesses(to);
    for (int i = 0; i < count; ++i) to.reads(norms[i], 1);
    if (before != nullptr) to.reads(before, 1);
    sum != nullptr ? to.writes(sum, 1) : to.writes(out);
  }
};
static_assert(sizeof(LimitNorm) < 4096);  // what a kernel's arguments may take

}  // namespace

namespace kernel {

#define WINDROW_STEP(op, rule)                                                         \
  int op(const Call& call, const Queue& queue) { return run_step<rule>(call, queue); } \
  int op##_rows(const Call& call, const Queue& queue) { return run_step_rows<rule>(call, queue); }
WINDROW_STEP(sgd_step, SgdRule)
WINDROW_STEP(momentum_step, MomentumRule)
WINDROW_STEP(adagrad_step, AdagradRule)
WINDROW_STEP(rmsprop_step, RmspropRule)
WINDROW_STEP(adam_step, AdamRule)

int squared_norm(const Call& call, const Queue& queue) {
  const In x = flat(call.in[0], call.in[0].dense());
  const BandsOfElements bands = bands_of_norm(x);
  if (bands.count == 1) return sum_elements(queue, SumElements<Square>{x, call.out, bands.elements, adds(call)});
  const Out sums = {reinterpret_cast<float*>(call.workspace), 1, bands.count, bands.count};
  if (const int error = sum_elements(queue, SumElements<Square>{x, sums, bands.elements, false});
      error != cudaSuccess) {
    return error;
  }
  return sum_elements(queue, SumElements<SumOfSquares>{sums, call.out, bands.count, adds(call)});
}
std::size_t squared_norm_workspace(const Call& call) {
  const BandsOfElements bands = bands_of_norm(call.in[0]);
  return bands.count == 1 ? 0 : static_cast<std::size_t>(bands.count) * sizeof(float);
}

/// Norms that do not fit into the arguments of one kernel are added up by kernels before.
int limit_norm(const Call& call, const Queue& queue) {
  float* const sum = reinterpret_cast<float*>(call.workspace);
  LimitNorm limit{{call.in[0].data}, {}, 0, nullptr, sum, call.out, adds(call)};
  for (std::size_t next = 1;;) {
    for (limit.count = 0; next < call.in.size() && limit.count < LimitNorm::most_norms; ++next) {
      limit.norms[limit.count++] = call.in[next].data;
    }
    if (next == call.in.size()) limit.sum = nullptr;
    if (const int error = launch(queue, {1}, limit); error != cudaSuccess || limit.sum == nullptr) return error;
    limit.before = sum;
  }
}
std::size_t limit_norm_workspace(const Call& call) {
  return call.in.size() - 1 <= LimitNorm::most_norms ? 0 : sizeof(float);
}

}  // namespace kernel
}  // namespace windrow::cuda
