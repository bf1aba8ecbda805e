// The kernels of training steps.
#include <algorithm>
#include <cmath>

#include "step_numbers.h"

namespace windrow::cuda {
namespace {

/// 1 - the coefficient.
WINDROW_ON_DEVICE inline float rest_of(float coefficient, float tail) { return (1 - coefficient) - tail; }
/// Limits a gradient so that its square is finite; an infinite gradient becomes NaN.
WINDROW_ON_DEVICE inline float bounded(float g) {
  constexpr float most = 0x1p63f;
  return (g > most ? most : g < -most ? -most : g) + 0 * g;
}
/// 1 - coefficient^steps.
WINDROW_ON_DEVICE inline float correction_of(float coefficient, float tail, float steps) {
  return -std::expm1(steps * std::log1p(-rest_of(coefficient, tail)));
}

// Each rule updates the states and returns what to subtract from the value.
struct SgdRule {
  static constexpr const char *name = "sgd_step", *name_of_rows = "sgd_step_rows";
  static constexpr bool squares = false;
  static constexpr int states = 0;
  WINDROW_ON_DEVICE static float change(const StepNumbers& h, float g, float*) { return h.rate * g; }
};
struct MomentumRule {
  static constexpr const char *name = "momentum_step", *name_of_rows = "momentum_step_rows";
  static constexpr bool squares = false;
  static constexpr int states = 1;
  WINDROW_ON_DEVICE static float change(const StepNumbers& h, float g, float* state) {
    state[0] = h.first * state[0] + g;
    return h.rate * (h.second == 1 ? g + h.first * state[0] : state[0]);
  }
};
struct AdagradRule {
  static constexpr const char *name = "adagrad_step", *name_of_rows = "adagrad_step_rows";
  static constexpr bool squares = true;
  static constexpr int states = 1;
  WINDROW_ON_DEVICE static float change(const StepNumbers& h, float g, float* state) {
    const float sum = state[0] + g * g;
    constexpr float most = std::numeric_limits<float>::max();
    state[0] = sum > most ? most : sum;
    return h.rate * g / (std::sqrt(state[0]) + h.epsilon);
  }
};
struct RmspropRule {
  static constexpr const char *name = "rmsprop_step", *name_of_rows = "rmsprop_step_rows";
  static constexpr bool squares = true;
  static constexpr int states = 1;
  WINDROW_ON_DEVICE static float change(const StepNumbers& h, float g, float* state) {
    state[0] = h.first * state[0] + rest_of(h.first, h.first_tail) * (g * g);
    return h.rate * g / (std::sqrt(state[0]) + h.epsilon);
  }
};
struct AdamRule {
  static constexpr const char *name = "adam_step", *name_of_rows = "adam_step_rows";
  static constexpr bool squares = true;
  static constexpr int states = 2;
  WINDROW_ON_DEVICE static float change(const StepNumbers& h, float g, float* state) {
    state[0] = h.first * state[0] + rest_of(h.first, h.first_tail) * g;
    state[1] = h.second * state[1] + rest_of(h.second, h.second_tail) * (g * g);
    const float root = std::sqrt(state[1]) / std::sqrt(h.second_correction) + h.epsilon;
    return h.rate / h.first_correction * state[0] / root;
  }
};

/// What a step changes: the value, and the states of the rule.
template <class Rule>
struct Changed {
  Out value;
  Out states[Rule::states + 1];

  WINDROW_ON_DEVICE void change(const StepNumbers& h, float x, Index r, Index c) const {
    float kept[Rule::states + 1];
    for (int s = 0; s < Rule::states; ++s) kept[s] = at(states[s], r, c);
    float& w = at(value, r, c);
    const float scaled = h.scale * x * h.scale_again;  // NaN stays NaN
    const float clipped = scaled > h.most ? h.most : scaled < -h.most ? -h.most : scaled;
    const float step = Rule::change(h, (Rule::squares ? bounded(clipped) : clipped) + h.penalty * w, kept);
    w = w * (1 - h.rate * h.decay) - step;
    for (int s = 0; s < Rule::states; ++s) at(states[s], r, c) = kept[s];
  }
  void accesses(Accesses& to) const {
    to.writes(value);
    for (int s = 0; s < Rule::states; ++s) to.writes(states[s]);
  }
};

template <class Rule>
struct TrainingStep {
  static constexpr const char* name = Rule::name;
  In x;
  Numbers numbers;
  Changed<Rule> changed;

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    const StepNumbers h = numbers.read();
    if (h.scale == 0) return;
    if (x.rows == 1) {  // without a division
      for_all(team, x.width, [&](Index c) { changed.change(h, at(x, 0, c), 0, c); });
    } else {
      for_elements(team, x.rows, x.width, [&](Index r, Index c) { changed.change(h, at(x, r, c), r, c); });
    }
  }
  void accesses(Accesses& to) const { to.all(x, numbers, changed); }
};

/// The steps of several parameters.
template <class Rule>
struct TrainingSteps {
  static constexpr const char* name = Rule::name;
  static constexpr std::size_t most = 16;  // so that they fit into the arguments of a kernel
  std::size_t count;
  TrainingStep<Rule> steps[most];

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    for (std::size_t k = 0; k < count; ++k) steps[k](team);
  }
  void accesses(Accesses& to) const {
    for (std::size_t k = 0; k < count; ++k) steps[k].accesses(to);
  }
};

/// If bad indices name one row more than once, only the first one counts.
template <class Rule>
struct TrainingStepOfRows {
  static constexpr const char* name = Rule::name_of_rows;
  In x;
  Numbers numbers;
  Indices rows;
  In steps;  ///< of each row of the value; empty if the numbers contain the corrections
  Changed<Rule> changed;

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    const StepNumbers h = numbers.read();
    if (h.scale == 0) return;
    for_elements(team, x.rows, x.width, [&](Index r, Index c) {
      const Index row = at(rows, r, 0);
      if (!within(row, changed.value.rows) || place_in(rows, row) != r) return;
      StepNumbers of_row = h;
      if (steps.data != nullptr) {
        of_row.first_correction = correction_of(h.first, h.first_tail, at(steps, row, 0));
        of_row.second_correction = correction_of(h.second, h.second_tail, at(steps, row, 0));
      }
      changed.change(of_row, at(x, r, c), row, c);
    });
  }
  void accesses(Accesses& to) const {
    to.reads(x);
    numbers.accesses(to);
    to.reads(rows);
    if (steps.data != nullptr) to.reads(steps);
    changed.accesses(to);
  }
};

struct CountStepRows {
  static constexpr const char* name = "count_step_rows";
  Numbers numbers;
  Indices rows;
  Out counts;

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    const StepNumbers h = numbers.read();
    if (h.scale == 0) return;
    for_all(team, rows.rows, [&](Index r) {
      const Index row = at(rows, r, 0);
      if (within(row, counts.rows) && place_in(rows, row) == r) at(counts, row, 0) += 1;
    });
  }
  void accesses(Accesses& to) const { to.all(numbers, rows, counts); }
};

template <class Rule>
TrainingStep<Rule> step_of_call(const Call& call) {
  bool dense = call.out.dense() && call.in[0].dense();
  for (const Out& state : call.states) dense = dense && state.dense();
  TrainingStep<Rule> step{flat(call.in[0], dense), {call.in[1].data}, {flat(call.out, dense), {}}};
  for (int s = 0; s < Rule::states; ++s) step.changed.states[s] = flat(call.states[static_cast<std::size_t>(s)], dense);
  return step;
}

template <class Rule>
int run_step(const Call& call, const Queue& queue) {
  const TrainingStep<Rule> step = step_of_call<Rule>(call);
  return launch(queue, shape_for_elements(queue, step.x.rows * step.x.width), step);
}

template <class Rule>
int run_steps(const Call* calls, std::size_t count, const Queue& queue) {
  TrainingSteps<Rule> steps;
  for (std::size_t done = 0; done < count; done += steps.count) {
    steps.count = std::min(count - done, steps.most);
    Index elements = 0;
    for (std::size_t k = 0; k < steps.count; ++k) {
      steps.steps[k] = step_of_call<Rule>(calls[done + k]);
      elements = std::max(elements, steps.steps[k].x.rows * steps.steps[k].x.width);
    }
    if (const int error = launch(queue, shape_for_elements(queue, elements), steps); error != success) return error;
  }
  return success;
}

template <class Rule>
int run_step_rows(const Call& call, const Queue& queue) {
  const In steps = call.in.size() == 3 ? call.in[2] : In{nullptr, 0, 0, 0};
  TrainingStepOfRows<Rule> step{call.in[0], {call.in[1].data}, call.indices[0], steps, {call.out, {}}};
  for (int s = 0; s < Rule::states; ++s) step.changed.states[s] = call.states[static_cast<std::size_t>(s)];
  return launch(queue, shape_for_elements(queue, step.x.rows * step.x.width), step);
}

template <class Rule>
constexpr KernelEntry step_of = {Rule::name, run_step<Rule>, nullptr, run_steps<Rule>};
template <class Rule>
constexpr KernelEntry step_of_rows = {Rule::name_of_rows, run_step_rows<Rule>};

int count_step_rows(const Call& call, const Queue& queue) {
  const CountStepRows count{{call.in[0].data}, call.indices[0], call.out};
  return launch(queue, shape_for_elements(queue, count.rows.rows), count);
}

}  // namespace

const KernelEntry training_step_kernels[] = {step_of<SgdRule>,
                                             step_of_rows<SgdRule>,
                                             step_of<MomentumRule>,
                                             step_of_rows<MomentumRule>,
                                             step_of<AdagradRule>,
                                             step_of_rows<AdagradRule>,
                                             step_of<RmspropRule>,
                                             step_of_rows<RmspropRule>,
                                             step_of<AdamRule>,
                                             step_of_rows<AdamRule>,
                                             {"count_step_rows", count_step_rows},
                                             {}};

}  // namespace windrow::cuda
