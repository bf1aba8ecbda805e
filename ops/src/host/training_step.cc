// Host kernels of training steps, by Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/training_step.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include <cmath>

#include "host/simd.h"
#include "windrow/ops/operators.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {

/// How a gradient is scaled. `plain`: by one factor. `penalised`: also with a penalty. `clipped`: also with a limit.
/// `twice`: all of these, and by two factors.
enum class Scaling : std::uint8_t { plain, penalised, clipped, twice };

/// The largest gradient that is squared: its square is a float.
constexpr float largest_root = 0x1p63f;

/// The numbers of a step, as each lane needs them. Elements are clipped to +-most.
struct StepVectors {
  HWY_INLINE StepVectors(const StepNumbers& h, float most_of_elements)
      : rate(hn::Set(d, h.rate)),
        scale(hn::Set(d, h.scale)),
        scale_again(hn::Set(d, h.scale_again)),
        most(hn::Set(d, most_of_elements)),
        penalty(hn::Set(d, h.penalty)),
        keep(hn::Set(d, 1 - h.rate * h.decay)),
        first(hn::Set(d, h.first)),
        rest_of_first(hn::Set(d, (1 - h.first) - h.first_tail)),
        second(hn::Set(d, h.second)),
        rest_of_second(hn::Set(d, (1 - h.second) - h.second_tail)),
        epsilon(hn::Set(d, h.epsilon)),
        nesterov(h.second == 1) {
    correct(h);
  }

  /// Takes the corrections over, such as those of another row.
  HWY_INLINE void correct(const StepNumbers& h) {
    corrected_rate = hn::Set(d, h.rate / h.first_correction);
    root_correction = hn::Set(d, 1 / std::sqrt(h.second_correction));
  }

  V rate, scale, scale_again, most, penalty, keep, first, rest_of_first, second, rest_of_second, epsilon;
  V corrected_rate, root_correction;
  bool nesterov;
};

// A rule returns what to subtract from the value, and updates the states. It says whether it squares gradients.
struct SgdRule {
  static constexpr std::size_t states = 0;
  static constexpr bool squares = false;
  static HWY_INLINE V change(const StepVectors& h, V g, V*) { return hn::Mul(h.rate, g); }
};
struct MomentumRule {
  static constexpr std::size_t states = 1;
  static constexpr bool squares = false;
  static HWY_INLINE V change(const StepVectors& h, V g, V* state) {
    state[0] = hn::MulAdd(h.first, state[0], g);
    return hn::Mul(h.rate, h.nesterov ? hn::MulAdd(h.first, state[0], g) : state[0]);
  }
};
/// For a sum or an average of squares.
HWY_INLINE V by_root(const StepVectors& h, V g, V squares) {
  return hn::Div(hn::Mul(h.rate, g), hn::Add(hn::Sqrt(squares), h.epsilon));
}
struct AdagradRule {
  static constexpr std::size_t states = 1;
  static constexpr bool squares = true;
  static HWY_INLINE V change(const StepVectors& h, V g, V* state) {
    state[0] = hn::Min(constant(std::numeric_limits<float>::max()), hn::MulAdd(g, g, state[0]));
    return by_root(h, g, state[0]);
  }
};
struct RmspropRule {
  static constexpr std::size_t states = 1;
  static constexpr bool squares = true;
  static HWY_INLINE V change(const StepVectors& h, V g, V* state) {
    state[0] = hn::MulAdd(h.first, state[0], hn::Mul(h.rest_of_first, hn::Mul(g, g)));
    return by_root(h, g, state[0]);
  }
};
struct AdamRule {
  static constexpr std::size_t states = 2;
  static constexpr bool squares = true;
  static HWY_INLINE V change(const StepVectors& h, V g, V* state) {
    state[0] = hn::MulAdd(h.first, state[0], hn::Mul(h.rest_of_first, g));
    state[1] = hn::MulAdd(h.second, state[1], hn::Mul(h.rest_of_second, hn::Mul(g, g)));
    const V root = hn::MulAdd(hn::Sqrt(state[1]), h.root_correction, h.epsilon);
    return hn::Div(hn::Mul(h.corrected_rate, state[0]), root);
  }
};

/// The scaled gradient. These orders of operands pass NaN through.
template <class Rule, Scaling scaling>
HWY_INLINE V scaled_gradient(const StepVectors& h, V x) {
  V g = hn::Mul(h.scale, x);
  if constexpr (scaling == Scaling::twice) g = hn::Mul(g, h.scale_again);
  if constexpr (scaling >= Scaling::clipped) g = hn::Max(hn::Neg(h.most), hn::Min(h.most, g));
  if constexpr (!Rule::squares || scaling == Scaling::clipped) return g;
  // An infinite one becomes NaN.
  const V most = hn::Set(d, largest_root);
  return hn::MulAdd(g, hn::Zero(d), hn::Max(hn::Neg(most), hn::Min(most, g)));
}

/// `load` and `store` move one vector of each row.
template <class Rule, Scaling scaling, class Load, class Store>
HWY_INLINE void change_vector(const StepVectors& h, const float* x, float* w, float* const* state, Load load,
                              Store store) {
  V states[Rule::states + 1];
  for (std::size_t s = 0; s < Rule::states; ++s) states[s] = load(state[s]);
  const V old = load(w);
  V g = scaled_gradient<Rule, scaling>(h, load(x));
  if constexpr (scaling != Scaling::plain) g = hn::MulAdd(h.penalty, old, g);
  const V change = Rule::change(h, g, states);
  store(hn::Sub(hn::Mul(old, h.keep), change), w);
  for (std::size_t s = 0; s < Rule::states; ++s) store(states[s], state[s]);
}

template <class Rule, Scaling scaling>
HWY_INLINE void change_row(const StepVectors& h, const float* x, float* w, float* const* state, Index n) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    change_vector<Rule, scaling>(
        h, x, w, state, [&](const float* from) HWY_ATTR { return hn::LoadU(d, from + i); },
        [&](V v, float* to) HWY_ATTR { hn::StoreU(v, d, to + i); });
  }
  if (i == n) return;
  Tail tail(n - i);
  change_vector<Rule, scaling>(
      h, x, w, state, [&](const float* from) HWY_ATTR { return tail.load(from + i); },
      [&](V v, float* to) HWY_ATTR { tail.store(v, to + i); });
}

/// Changes row `to` of the result by row `from` of the gradient, or `n` elements from its start.
template <class Rule, Scaling scaling>
HWY_INLINE void change_row(const HostCall& k, const StepVectors& h, Index from, Index to, Index n) {
  float* state[Rule::states + 1];
  for (std::size_t s = 0; s < Rule::states; ++s) state[s] = k.states[s].row(to);
  change_row<Rule, scaling>(h, k.in[0].row(from), k.out.row(to), state, n);
}

/// Copies the numbers to local vectors, which stay in registers.
template <class Rule, Scaling scaling>
void step_scaled(const HostCall& k, const StepNumbers& numbers, float most) {
  const StepVectors h(numbers, most);
  bool dense = k.out.dense() && k.in[0].dense();
  for (const auto& state : k.states) dense = dense && state.dense();
  if (dense) return change_row<Rule, scaling>(k, h, 0, 0, k.out.rows * k.out.width);
  for (Index r = 0; r < k.out.rows; ++r) change_row<Rule, scaling>(k, h, r, r, k.out.width);
}

/// Calls body(r, to) for row r of the indices, which names row `to` of the result.
template <class Body>
HWY_INLINE void each_named_row(const HostCall& k, const Body& body) {
  Index next = 0;
  for (Index r = 0; r < k.indices[0].rows; ++r) {
    const Index row = *k.indices[0].row(r);
    if (row < next || row >= k.out.rows) throw_bad_index(row, r, {next, k.out.rows - 1});
    body(r, row);
    next = row + 1;
  }
}

template <class Rule, Scaling scaling>
void step_rows_scaled(const HostCall& k, const StepNumbers& given, float most) {
  StepNumbers numbers = given;
  StepVectors h(numbers, most);
  float steps = 0;
  each_named_row(k, [&](Index r, Index to) HWY_ATTR {
    if (numbers.scale == 0) return;
    if (k.in.size() == 3 && *k.in[2].row(to) != steps) {
      steps = *k.in[2].row(to);
      numbers.correct(static_cast<std::uint64_t>(steps));
      h.correct(numbers);
    }
    change_row<Rule, scaling>(k, h, r, to, k.out.width);
  });
}

/// Calls the function for the scaling that the numbers need, with the numbers and the largest magnitude of an element.
template <class Run>
void run_scaled(const HostCall& k, bool squares, Run plain, Run penalised, Run clipped, Run twice) {
  const StepNumbers numbers = StepNumbers::of(k.in[1].data);
  if (numbers.scale_again != 1) return twice(k, numbers, numbers.most);
  if (numbers.most < infinity) {
    return clipped(k, numbers, squares ? std::min(numbers.most, largest_root) : numbers.most);
  }
  numbers.penalty == 0 ? plain(k, numbers, numbers.most) : penalised(k, numbers, numbers.most);
}

template <class Rule>
void step(const HostCall& k) {
  if (StepNumbers::of(k.in[1].data).scale == 0 || k.out.rows == 0) return;
  run_scaled(k, Rule::squares, step_scaled<Rule, Scaling::plain>, step_scaled<Rule, Scaling::penalised>,
             step_scaled<Rule, Scaling::clipped>, step_scaled<Rule, Scaling::twice>);
}
template <class Rule>
void step_rows(const HostCall& k) {
  run_scaled(k, Rule::squares, step_rows_scaled<Rule, Scaling::plain>, step_rows_scaled<Rule, Scaling::penalised>,
             step_rows_scaled<Rule, Scaling::clipped>, step_rows_scaled<Rule, Scaling::twice>);
}

void sgd_step(const HostCall& k) { step<SgdRule>(k); }
void momentum_step(const HostCall& k) { step<MomentumRule>(k); }
void adagrad_step(const HostCall& k) { step<AdagradRule>(k); }
void rmsprop_step(const HostCall& k) { step<RmspropRule>(k); }
void adam_step(const HostCall& k) { step<AdamRule>(k); }
void sgd_step_rows(const HostCall& k) { step_rows<SgdRule>(k); }
void momentum_step_rows(const HostCall& k) { step_rows<MomentumRule>(k); }
void adagrad_step_rows(const HostCall& k) { step_rows<AdagradRule>(k); }
void rmsprop_step_rows(const HostCall& k) { step_rows<RmspropRule>(k); }
void adam_step_rows(const HostCall& k) { step_rows<AdamRule>(k); }
void count_step_rows(const HostCall& k) {
  const bool skipped = StepNumbers::of(k.in[0].data).scale == 0;
  each_named_row(k, [&](Index, Index to) { *k.out.row(to) += skipped ? 0.0f : 1.0f; });
}

float scaled_squares_of(const float* x, Index n) {
  return sum_row<1>({x}, n, [](V so_far, V v) HWY_ATTR {
    const V scaled = hn::Mul(v, constant(0x1p-96));
    return hn::MulAdd(scaled, scaled, so_far);
  });
}

void squared_norm(const HostCall& k) {
  zero_unless_adding(k);
  add_rows(k.out.data, 2, k.in[0].rows, [&](Index r, Index, float* part, Index) HWY_ATTR {
    const float* const row = k.in[0].row(r);
    const float square = row_dot_of(row, row, k.in[0].width);
    part[0] += square;
    if (square < 0x1p66f) return;  // too small to matter if the sum is too large for a float
    part[1] += square <= std::numeric_limits<float>::max() ? square * 0x1p-96f * 0x1p-96f
                                                           : scaled_squares_of(row, k.in[0].width);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {
namespace {

/// Multiplies the scales so that gradients of this norm, before scaling, get one of at most h.most_norm.
void limit(StepNumbers& h, double norm) {
  if (h.scale == 0 || !std::isfinite(h.most_norm)) return;
  const double scale = static_cast<double>(h.scale) * static_cast<double>(h.scale_again);
  norm *= std::abs(scale);
  if (!std::isfinite(norm)) {
    h.scale = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  const double factor = std::min(1.0, static_cast<double>(h.most_norm) / (norm + 1e-6)), all = scale * factor;
  if (std::abs(all) >= 0x1p-100) {
    h.scale = static_cast<float>(static_cast<double>(h.scale) * factor);
  } else {
    h.scale_again = static_cast<float>(std::sqrt(std::abs(all)));
    h.scale = std::copysign(h.scale_again, h.scale);
  }
}

void limit_norm(const HostCall& k) {
  double sum = 0;
  for (std::size_t i = 1; i < k.in.size(); ++i) {
    const float* const norm = k.in[i].data;
    const bool scaled = k.in[i].width == 2 && !std::isfinite(norm[0]);
    sum += scaled ? static_cast<double>(norm[1]) * 0x1p192 : static_cast<double>(norm[0]);
  }
  for (Index r = 0; r < k.out.rows; ++r) {
    StepNumbers h = StepNumbers::of(k.in[0].row(r));
    limit(h, std::sqrt(sum));
    for (Index c = 0; c < k.out.width; ++c) {
      float& to = k.out.row(r)[c];
      to = k.write == Write::add ? to + h.begin()[c] : h.begin()[c];
    }
  }
}

}  // namespace

#define WINDROW_KERNELS(X) \
  X(sgd_step)              \
  X(momentum_step)         \
  X(adagrad_step)          \
  X(rmsprop_step)          \
  X(adam_step)             \
  X(sgd_step_rows)         \
  X(momentum_step_rows)    \
  X(adagrad_step_rows) X(rmsprop_step_rows) X(adam_step_rows) X(count_step_rows) X(squared_norm)

WINDROW_KERNELS(WINDROW_EXPORT)

void add_host_training_steps(KernelTable<float>& table) {
  WINDROW_KERNELS(WINDROW_ADD)
  table.add(op::limit_norm, limit_norm);
}

}  // namespace windrow
#endif  // HWY_ONCE
