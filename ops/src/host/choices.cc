// Host kernels of the largest elements of rows, and of draws. Draws are by Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/choices.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "host/simd.h"
#include "windrow/ops/operators.h"
#include "windrow/ops/philox.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {

/// The draw of a row: the column with the largest x + Gumbel noise (Gumbel 1954).
class Draw {
 public:
  Draw(const HostCall& k)
      : site_(static_cast<std::uint32_t>(k.attributes.sizes[1]) << 16),
        key_(philox_key(static_cast<std::uint64_t>(k.attributes.sizes[0]))),
        values_(static_cast<std::size_t>((k.in[0].width + 3) / 4 * 4)) {}

  Index operator()(const float* x, Index n, const std::int32_t* keys) {
    const auto word = [&](int i) { return static_cast<std::uint32_t>(keys[i]); };
    for (Index c = 0; c < n; c += 4) {
      const PhiloxCounter words = philox({site_ | static_cast<std::uint32_t>(c / 4), word(0), word(1), word(2)}, key_);
      for (std::size_t i = 0; i < 4; ++i) values_[static_cast<std::size_t>(c) + i] = open_uniform(words[i]);
    }
    map_row<1>(values_.data(), {x}, n,
               [](V uniform, V logit) HWY_ATTR { return hn::Sub(logit, log_of(hn::Neg(log_of(uniform)))); });
    return first_maximum(values_.data(), n);
  }

 private:
  const std::uint32_t site_;
  const PhiloxKey key_;
  std::vector<float> values_;
};

void sample(const HostCall& k) {
  Draw draw(k);
  write_scalars(k, [&, x = k.in[0]](Index r)
                       HWY_ATTR { return static_cast<float>(draw(x.row(r), x.width, k.indices[0].row(r))); });
}

void argmax(const HostCall& k) {
  write_scalars(k, [x = k.in[0]](Index r) HWY_ATTR { return static_cast<float>(first_maximum(x.row(r), x.width)); });
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {

HWY_EXPORT(sample);
HWY_EXPORT(argmax);

namespace {

/// The places of the largest elements of columns of rows.
class Chooser {
 public:
  explicit Chooser(const HostCall& k)
      : count_(k.attributes.sizes[0]),
        columns_(k.attributes.sizes[1]),
        by_place_(k.attributes.sizes[2] == 1),
        places_(static_cast<std::size_t>(k.in[0].width / columns_)) {}

  /// Calls visit(column of x, column of the result, place) for all elements that are chosen from the row.
  template <class Visit>
  void each(const float* x, Visit visit) {
    for (Index c = 0; c < columns_; ++c) {
      choose(x + c);
      for (Index j = 0; j < count_; ++j) {
        const Index place = places_[static_cast<std::size_t>(j)];
        visit(place * columns_ + c, j * columns_ + c, place);
      }
    }
  }

 private:
  void choose(const float* x) {
    std::iota(places_.begin(), places_.end(), Index{0});
    const auto before = [&](Index a, Index b) {  // NaN first; of equal elements, the first one
      const float u = x[a * columns_], v = x[b * columns_];
      if (std::isnan(u) != std::isnan(v)) return std::isnan(u);
      return u > v || (!(u < v) && a < b);
    };
    const auto end = places_.begin() + count_;
    std::partial_sort(places_.begin(), end, places_.end(), before);
    if (by_place_) std::sort(places_.begin(), end);
  }

  const Index count_, columns_;
  const bool by_place_;
  std::vector<Index> places_;
};

/// Calls visit(r, column of x, column of the result, place) for all rows and chosen elements.
template <class Visit>
void each_chosen(const HostCall& k, Visit visit) {
  Chooser chooser(k);
  for (Index r = 0; r < k.in[0].rows; ++r) {
    chooser.each(k.in[0].row(r), [&](Index from, Index to, Index place) { visit(r, from, to, place); });
  }
}

void put(const HostCall& k, float& to, float value) { to = k.write == Write::add ? to + value : value; }

void top_k(const HostCall& k) {
  each_chosen(k, [&](Index r, Index from, Index to, Index) { put(k, k.out.row(r)[to], k.in[0].row(r)[from]); });
}
void top_k_gradient(const HostCall& k) {
  zero_unless_adding(k);
  each_chosen(k, [&](Index r, Index from, Index to, Index) { k.out.row(r)[from] += k.in[1].row(r)[to]; });
}
void arg_top_k(const HostCall& k) {
  if (k.out.width == 1) return HWY_DYNAMIC_DISPATCH(argmax)(k);
  each_chosen(k, [&](Index r, Index, Index to, Index place) { put(k, k.out.row(r)[to], static_cast<float>(place)); });
}

}  // namespace

void add_host_choices(KernelTable<float>& table) {
  table.add(op::top_k, top_k);
  table.add(op::top_k_gradient, top_k_gradient);
  table.add(op::arg_top_k, arg_top_k);
  table.add(op::sample, [](const HostCall& k) { HWY_DYNAMIC_DISPATCH(sample)(k); });
}

}  // namespace windrow
#endif  // HWY_ONCE
