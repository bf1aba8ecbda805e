// Host kernels of training steps, by Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host_training_step.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include "host_simd.h"
#include "windrow/ops/operators.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {

/// The numbers of a step, as each lane needs them.
struct StepVectors {
  explicit StepVectors(const StepNumbers& h)
      : rate(hn::Set(d, h.rate)),
        scale(hn::Set(d, h.scale)),
        most(hn::Set(d, h.most)),
        penalty(hn::Set(d, h.penalty)),
        keep(hn::Set(d, 1 - h.rate * h.decay)),
        first(hn::Set(d, h.first)),
        rest_of_first(hn::Set(d, 1 - h.first)),
        second(hn::Set(d, h.second)),
        rest_of_second(hn::Set(d, 1 - h.second)),
        corrected_rate(hn::Set(d, h.rate / h.first_correction)),
        root_correction(hn::Set(d, 1 / std::sqrt(h.second_correction))),
        epsilon(hn::Set(d, h.epsilon)),
        nesterov(h.second == 1) {}

  V rate, scale, most, penalty, keep, first, rest_of_first, second, rest_of_second, corrected_rate, root_correction,
      epsilon;
  bool nesterov;
};

// A rule returns what to subtract from the value, and updates the states.
struct SgdRule {
  static constexpr std::size_t states = 0;
  static HWY_INLINE V change(const StepVectors& h, V g, V*) { return hn::Mul(h.rate, g); }
};
struct MomentumRule {
  static constexpr std::size_t states = 1;
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
  static HWY_INLINE V change(const StepVectors& h, V g, V* state) {
    state[0] = hn::MulAdd(g, g, state[0]);
    return by_root(h, g, state[0]);
  }
};
struct RmspropRule {
  static constexpr std::size_t states = 1;
  static HWY_INLINE V change(const StepVectors& h, V g, V* state) {
    state[0] = hn::MulAdd(h.first, state[0], hn::Mul(h.rest_of_first, hn::Mul(g, g)));
    return by_root(h, g, state[0]);
  }
};
struct AdamRule {
  static constexpr std::size_t states = 2;
  static HWY_INLINE V change(const StepVectors& h, V g, V* state) {
    state[0] = hn::MulAdd(h.first, state[0], hn::Mul(h.rest_of_first, g));
    state[1] = hn::MulAdd(h.second, state[1], hn::Mul(h.rest_of_second, hn::Mul(g, g)));
    const V root = hn::MulAdd(hn::Sqrt(state[1]), h.root_correction, h.epsilon);
    return hn::Div(hn::Mul(h.corrected_rate, state[0]), root);
  }
};

/// `load` and `store` move one vector of each row.
template <class Rule, class Load, class Store>
HWY_INLINE void change_vector(const StepVectors& h, const float* x, float* w, float* const* state, Load load,
                              Store store) {
  V states[Rule::states + 1];
  for (std::size_t s = 0; s < Rule::states; ++s) states[s] = load(state[s]);
  const V old = load(w), scaled = hn::Mul(h.scale, load(x));
  const V clipped = hn::Max(hn::Neg(h.most), hn::Min(h.most, scaled));  // this order passes NaN through
  const V change = Rule::change(h, hn::MulAdd(h.penalty, old, clipped), states);
  store(hn::Sub(hn::Mul(old, h.keep), change), w);
  for (std::size_t s = 0; s < Rule::states; ++s) store(states[s], state[s]);
}

template <class Rule>
HWY_INLINE void change_row(const StepVectors& h, const float* x, float* w, float* const* state, Index n) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    change_vector<Rule>(
        h, x, w, state, [&](const float* from) HWY_ATTR { return hn::LoadU(d, from + i); },
        [&](V v, float* to) HWY_ATTR { hn::StoreU(v, d, to + i); });
  }
  if (i == n) return;
  Tail tail(n - i);
  change_vector<Rule>(
      h, x, w, state, [&](const float* from) HWY_ATTR { return tail.load(from + i); },
      [&](V v, float* to) HWY_ATTR { tail.store(v, to + i); });
}

/// Changes row `to` of the result by row `from` of the gradient, or `n` elements from its start.
template <class Rule>
HWY_INLINE void change_row(const HostCall& k, const StepVectors& h, Index from, Index to, Index n) {
  float* state[Rule::states + 1];
  for (std::size_t s = 0; s < Rule::states; ++s) state[s] = k.states[s].row(to);
  change_row<Rule>(h, k.in[0].row(from), k.out.row(to), state, n);
}

template <class Rule>
void step(const HostCall& k) {
  const StepNumbers numbers = StepNumbers::of(k.in[1].data);
  if (numbers.scale == 0 || k.out.rows == 0) return;
  const StepVectors h(numbers);
  bool dense = k.out.dense() && k.in[0].dense();
  for (const auto& state : k.states) dense = dense && state.dense();
  if (dense) return change_row<Rule>(k, h, 0, 0, k.out.rows * k.out.width);
  for (Index r = 0; r < k.out.rows; ++r) change_row<Rule>(k, h, r, r, k.out.width);
}

template <class Rule>
void step_rows(const HostCall& k) {
  const StepNumbers numbers = StepNumbers::of(k.in[1].data);
  const StepVectors h(numbers);
  Index next = 0;
  for (Index r = 0; r < k.in[0].rows; ++r) {
    const Index row = *k.indices[0].row(r);
    if (row < next || row >= k.out.rows) throw_bad_index(row, r, {next, k.out.rows - 1});
    if (numbers.scale != 0) change_row<Rule>(k, h, r, row, k.out.width);
    next = row + 1;
  }
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

void squared_norm(const HostCall& k) {
  zero_unless_adding(k);
  add_rows(k.out.data, 1, k.in[0].rows, [&](Index r, Index, float* part, Index) HWY_ATTR {
    *part += row_dot_of(k.in[0].row(r), k.in[0].row(r), k.in[0].width);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {
namespace {

void limit_norm(const HostCall& k) {
  StepNumbers h = StepNumbers::of(k.in[0].data);
  double sum = 0;
  for (std::size_t i = 1; i < k.in.size(); ++i) sum += static_cast<double>(*k.in[i].data);
  if (h.scale != 0 && std::isfinite(h.most_norm)) {
    const double norm = static_cast<double>(std::abs(h.scale)) * std::sqrt(sum);
    const double factor = std::min(1.0, static_cast<double>(h.most_norm) / (norm + 1e-6));
    h.scale *= std::isfinite(norm) ? static_cast<float>(factor) : std::numeric_limits<float>::quiet_NaN();
  }
  for (Index c = 0; c < k.out.width; ++c) {
    float& to = k.out.data[c];
    to = k.write == Write::add ? to + h.begin()[c] : h.begin()[c];
  }
}

}  // namespace

#define WINDROW_KERNELS(X) \
  X(sgd_step)              \
  X(momentum_step)         \
  X(adagrad_step)          \
  X(rmsprop_step)          \
  X(adam_step)             \
  X(sgd_step_rows) X(momentum_step_rows) X(adagrad_step_rows) X(rmsprop_step_rows) X(adam_step_rows) X(squared_norm)

#define WINDROW_EXPORT(NAME) HWY_EXPORT(NAME);
WINDROW_KERNELS(WINDROW_EXPORT)

void add_host_training_steps(KernelTable<float>& table) {
#define WINDROW_ADD(NAME) table.add(op::NAME, [](const HostCall& call) { HWY_DYNAMIC_DISPATCH(NAME)(call); });
  WINDROW_KERNELS(WINDROW_ADD)
  table.add(op::limit_norm, limit_norm);
}

}  // namespace windrow
#endif  // HWY_ONCE
