// Host kernels that reduce, scale or fill single rows, maxima of segments, and dropout, by Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/rowwise.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include <algorithm>
#include <cmath>

#include "host/simd.h"
#include "windrow/ops/internal/dropout.h"
#include "windrow/ops/operators.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {

void row_sum(const HostCall& k) {
  write_scalars(k, [x = k.in[0]](Index r) HWY_ATTR { return row_sum_of(x.row(r), x.width); });
}

void row_dot(const HostCall& k) {
  write_scalars(k, [x = k.in[0], y = k.in[1]](Index r) HWY_ATTR { return row_dot_of(x.row(r), y.row(r), x.width); });
}

void mul_columns(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    const V factor = hn::Set(d, *k.in[1].row(r));
    write_row<1>(k.write, k.out.row(r), {k.in[0].row(r)}, k.out.width,
                 [=](V v) HWY_ATTR { return hn::Mul(v, factor); });
  }
}

void add_bias(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    write_row<2>(k.write, k.out.row(r), {k.in[0].row(r), k.in[1].data}, k.out.width,
                 [](V x, V bias) HWY_ATTR { return hn::Add(x, bias); });
  }
}

void mul_row(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    write_row<2>(k.write, k.out.row(r), {k.in[0].row(r), k.in[1].data}, k.out.width,
                 [](V x, V factor) HWY_ATTR { return hn::Mul(x, factor); });
  }
}

void column_dot(const HostCall& k) {
  zero_unless_adding(k);
  add_rows(k.out.data, k.out.width, k.in[0].rows, [&](Index r, Index begin, float* part, Index n) HWY_ATTR {
    map_row<2>(part, {k.in[0].row(r) + begin, k.in[1].row(r) + begin}, n,
               [](V sum, V x, V y) HWY_ATTR { return hn::MulAdd(x, y, sum); });
  });
}

void gather_dot(const HostCall& k) {
  zero_unless_adding(k);
  const Matrix<const float>&x = k.in[0], &y = k.in[1];
  for (Index r = 0; r < k.out.rows; ++r) {
    const auto [first, last] = checked_segment(k.indices[0], r, k.indices[1].rows);
    const auto add = [&, first = first](Index i, Index, float* part, Index) HWY_ATTR {
      *part += row_dot_of(x.row(checked_row(k.indices[1], first + i, 0, x.rows)),
                          y.row(checked_row(k.indices[1], first + i, 1, y.rows)), x.width);
    };
    add_rows(k.out.row(r), 1, last - first, add);
  }
}

/// Adds up some vectors of neighbouring columns at a time, in registers. Each column has one order of additions.
void gather_weighted_sum(const HostCall& k) {
  zero_unless_adding(k);
  const Matrix<const float>&x = k.in[0], &y = k.in[1];
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index r = 0; r < k.out.rows; ++r) {
    const auto [begin, end] = checked_segment(k.indices[0], r, k.indices[1].rows);
    const auto add = [&, begin = begin](Index first, Index last, Index column, float* out, Index n) HWY_ATTR {
      const auto each = [&](auto visit) HWY_ATTR {
        for (Index q = begin + first; q < begin + last; ++q) {
          visit(x.row(checked_row(k.indices[1], q, 0, x.rows)) + column,
                hn::Set(d, *y.row(checked_row(k.indices[1], q, 1, y.rows))));
        }
      };
      Index c = 0;
      for (; c + 4 * lanes <= n; c += 4 * lanes) {
        V a0 = hn::LoadU(d, out + c), a1 = hn::LoadU(d, out + c + lanes);
        V a2 = hn::LoadU(d, out + c + 2 * lanes), a3 = hn::LoadU(d, out + c + 3 * lanes);
        each([&](const float* row, V factor) HWY_ATTR {
          a0 = hn::MulAdd(hn::LoadU(d, row + c), factor, a0);
          a1 = hn::MulAdd(hn::LoadU(d, row + c + lanes), factor, a1);
          a2 = hn::MulAdd(hn::LoadU(d, row + c + 2 * lanes), factor, a2);
          a3 = hn::MulAdd(hn::LoadU(d, row + c + 3 * lanes), factor, a3);
        });
        hn::StoreU(a0, d, out + c);
        hn::StoreU(a1, d, out + c + lanes);
        hn::StoreU(a2, d, out + c + 2 * lanes);
        hn::StoreU(a3, d, out + c + 3 * lanes);
      }
      if (c == n) return;
      each([&](const float* row, V factor) HWY_ATTR {
        map_row<1>(out + c, {row + c}, n - c, [=](V sum, V v) HWY_ATTR { return hn::MulAdd(v, factor, sum); });
      });
    };
    add_blocks(k.out.row(r), x.width, end - begin, add);
  }
}

void spread_rows(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    write_row<1>(k.write, k.out.row(r), {k.in[0].data}, k.out.width, [](V x) HWY_ATTR { return x; });
  }
}

void spread_columns(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    const V x = hn::Set(d, *k.in[0].row(r));
    write_row<0>(k.write, k.out.row(r), {}, k.out.width, [=]() HWY_ATTR { return x; });
  }
}

void squared_distance(const HostCall& k) {
  const auto add_square = [](V so_far, V x, V y) HWY_ATTR {
    const V difference = hn::Sub(x, y);
    return hn::MulAdd(difference, difference, so_far);
  };
  write_scalars(k, [&, x = k.in[0], y = k.in[1]](Index r) HWY_ATTR {
    return sum_row<2>({x.row(r), y.row(r)}, x.width, add_square);
  });
}

void squared_distance_gradient(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    const V factor = hn::Set(d, 2 * *k.in[2].row(r));
    write_row<2>(k.write, k.out.row(r), {k.in[0].row(r), k.in[1].row(r)}, k.out.width,
                 [=](V x, V y) HWY_ATTR { return hn::Mul(factor, hn::Sub(x, y)); });
  }
}

void row_max(const HostCall& k) {
  write_scalars(k, [x = k.in[0]](Index r) HWY_ATTR { return x.width == 0 ? 0 : maximum_of(x.row(r), x.width); });
}

void row_max_gradient(const HostCall& k) {
  zero_unless_adding(k);
  for (Index r = 0; r < k.out.rows && k.out.width > 0; ++r) {
    k.out.row(r)[first_maximum(k.in[0].row(r), k.out.width)] += *k.in[1].row(r);
  }
}

/// The maximum of the elements of a row other than that of the label.
HWY_INLINE float rival_of(const float* x, Index n, Index label) {
  const float before = maximum_of(x, label), after = maximum_of(x + label + 1, n - label - 1);
  return before < after || std::isnan(after) ? after : before;
}

void hinge(const HostCall& k) {
  const auto margin = static_cast<float>(k.attributes.values[0]);
  write_scalars(k, [&, x = k.in[0]](Index r) HWY_ATTR {
    const Index label = checked_label(k.indices[0], r, x.width);
    if (label < 0 || x.width == 1) return 0.0f;
    const float loss = margin + rival_of(x.row(r), x.width, label) - x.row(r)[label];
    return loss <= 0 ? 0 : loss;  // NaN stays NaN
  });
}

void hinge_gradient(const HostCall& k) {
  zero_unless_adding(k);
  const auto margin = static_cast<float>(k.attributes.values[0]);
  for (Index r = 0; r < k.out.rows; ++r) {
    const Index label = checked_label(k.indices[0], r, k.out.width);
    if (label < 0 || k.out.width == 1) continue;
    const float *x = k.in[0].row(r), g = *k.in[1].row(r), rival = rival_of(x, k.out.width, label);
    if (margin + rival - x[label] <= 0) continue;
    Index other = 0;
    while (other == label || (rival == rival ? x[other] != rival : x[other] == x[other])) ++other;
    k.out.row(r)[other] += g;
    k.out.row(r)[label] -= g;
  }
}

/// Writes part(top) for each non-empty segment.
template <class Part>
HWY_INLINE void write_tops(const HostCall& k, Part part) {
  zero_unless_adding(k);
  const Matrix<const float> x = k.in[0];
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index r = 0; r < k.out.rows; ++r) {
    const auto [first, last] = checked_segment(k.indices[0], r, x.rows);
    if (first == last) continue;
    float* const out = k.out.row(r);
    Index c = 0;
    for (; c + lanes <= k.out.width; c += lanes) {
      const Top top = top_of(first, last, [&](Index from) HWY_ATTR { return hn::LoadU(d, x.row(from) + c); });
      hn::StoreU(hn::Add(hn::LoadU(d, out + c), part(top)), d, out + c);
    }
    if (c == k.out.width) continue;
    Tail tail(k.out.width - c);
    const Top top = top_of(first, last, [&](Index from) HWY_ATTR { return tail.load(x.row(from) + c); });
    tail.store(hn::Add(tail.load(out + c), part(top)), out + c);
  }
}

void segment_max(const HostCall& k) {
  write_tops(k, [](const Top& top) HWY_ATTR { return top.value; });
}

void segment_argmax(const HostCall& k) {
  write_tops(k, [](const Top& top) HWY_ATTR { return top.place; });
}

void gather_where(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    const Index from = checked_row(k.indices[0], r, k.in[0].rows);
    const V there = hn::Set(d, static_cast<float>(k.indices[0].row(r)[1]));
    write_row<2>(k.write, k.out.row(r), {k.in[0].row(from), k.in[1].row(from)}, k.out.width,
                 [=](V x, V y) HWY_ATTR { return hn::IfThenElseZero(hn::Eq(x, there), y); });
  }
}

void take_larger(float* to, const float* from, Index n) {
  map_row<1>(to, {from}, n, [](V old, V x) HWY_ATTR { return larger(old, x); });
}

float sum_elements(const float* x, Index n) { return row_sum_of(x, n); }

using DU = hn::ScalableTag<std::uint32_t>;
using VU = hn::Vec<DU>;
constexpr DU du;

/// The upper halves of the products of x and `all`, which has the same number in all lanes.
HWY_INLINE VU upper_product(VU x, VU all) {
#if HWY_TARGET == HWY_SCALAR  // vectors of one lane, which has no half
  return hn::Set(du, static_cast<std::uint32_t>(std::uint64_t{hn::GetLane(x)} * hn::GetLane(all) >> 32));
#else
  const hn::Repartition<std::uint64_t, DU> wide;
  const auto odd = hn::MulEven(hn::BitCast(du, hn::ShiftRight<32>(hn::BitCast(wide, x))), all);
  return hn::OddEven(hn::BitCast(du, odd), hn::BitCast(du, hn::ShiftRight<32>(hn::MulEven(x, all))));
#endif
}

/// philox() for a counter in each lane.
struct Counters {
  VU c0, c1, c2, c3;
  HWY_INLINE void mix(VU key0, VU key1) {
    const VU a = hn::Set(du, 0xD2511F53u), b = hn::Set(du, 0xCD9E8D57u);
    for (int round = 0; round < 10; ++round) {
      const VU low_a = hn::Mul(a, c0), low_b = hn::Mul(b, c2);
      const VU upper_a = upper_product(c0, a), upper_b = upper_product(c2, b);
      c0 = hn::Xor(hn::Xor(upper_b, c1), key0);
      c2 = hn::Xor(hn::Xor(upper_a, c3), key1);
      c1 = low_b;
      c3 = low_a;
      key0 = hn::Add(key0, hn::Set(du, 0x9E3779B9u));
      key1 = hn::Add(key1, hn::Set(du, 0xBB67AE85u));
    }
  }
};

/// A block of four columns, which share a counter.
struct RowBlock {
  Index row, number;
};

/// The factors of one block for each lane. Blocks continue in the next row, so narrow rows fill the lanes, too.
class DropoutFactors {
 public:
  explicit DropoutFactors(const HostCall& k)
      : keys_(k.indices[0]),
        blocks_((k.out.width + 3) / 4),
        site_(static_cast<std::uint32_t>(k.attributes.sizes[1]) << 16),
        key_(philox_key(static_cast<std::uint64_t>(k.attributes.sizes[0]))),
        rate_(k.attributes.values[0]) {}

  /// Draws the factors of the blocks from `at` on, and returns the block after the last one.
  RowBlock draw(RowBlock at) {
    HWY_ALIGN std::uint32_t words[4][HWY_MAX_BYTES / sizeof(std::uint32_t)] = {};
    HWY_ALIGN std::uint32_t seeds[2][HWY_MAX_BYTES / sizeof(std::uint32_t)] = {};
    for (std::size_t lane = 0; lane < hn::Lanes(du) && at.row < keys_.rows; ++lane) {
      words[0][lane] = site_ | static_cast<std::uint32_t>(at.number);
      const PhiloxKey seed = keys_.width == 5 ? seed_of(keys_.row(at.row)) : key_;
      for (std::size_t half : {0u, 1u}) seeds[half][lane] = seed[half];
      for (int i = 0; i < 3; ++i) words[i + 1][lane] = static_cast<std::uint32_t>(keys_.row(at.row)[i]);
      at = at.number + 1 < blocks_ ? RowBlock{at.row, at.number + 1} : RowBlock{at.row + 1, 0};
    }
    Counters c{hn::Load(du, words[0]), hn::Load(du, words[1]), hn::Load(du, words[2]), hn::Load(du, words[3])};
    c.mix(hn::Load(du, seeds[0]), hn::Load(du, seeds[1]));
    hn::StoreInterleaved4(factor(c.c0), factor(c.c1), factor(c.c2), factor(c.c3), d, factors);
    return at;
  }

  HWY_ALIGN float factors[4 * HWY_MAX_BYTES / sizeof(float)];

 private:
  HWY_INLINE V factor(VU word) const {
    const auto dropped = hn::Lt(hn::ShiftRight<8>(word), hn::Set(du, dropout_threshold(rate_)));
    return hn::IfThenZeroElse(hn::RebindMask(d, dropped), constant(1 / (1 - rate_)));
  }

  const Indices keys_;
  const Index blocks_;
  const std::uint32_t site_;
  const PhiloxKey key_;
  const double rate_;
};

void dropout(const HostCall& k) {
  if (k.out.width == 0) return;
  const auto apply = [](V x, V f) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(f, hn::Zero(d)), hn::Mul(x, f)); };
  DropoutFactors drawn(k);
  RowBlock end;
  for (RowBlock at{0, 0}; at.row < k.out.rows; at = end) {
    end = drawn.draw(at);
    const float* factor = drawn.factors;
    for (Index row = at.row; row < k.out.rows && row <= end.row; ++row) {
      const Index begin = row == at.row ? 4 * at.number : 0;
      const Index n = (row == end.row ? 4 * end.number : k.out.width) - begin;
      write_row<2>(k.write, k.out.row(row) + begin, {k.in[0].row(row) + begin, factor}, n, apply);
      factor += (n + 3) / 4 * 4;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {

// The kernels, each named like its operator.
// clang-format off
#define WINDROW_KERNELS(X)                                                                     \
  X(row_sum) X(add_bias) X(spread_rows) X(spread_columns) X(row_dot) X(mul_columns) X(squared_distance) X(squared_distance_gradient) X(row_max) \
  X(row_max_gradient) X(segment_max) X(segment_argmax) X(gather_where) X(dropout) X(hinge) X(hinge_gradient) X(mul_row) X(column_dot) \
  X(gather_dot) X(gather_weighted_sum)
// clang-format on

WINDROW_HOST_KERNELS(add_host_rowwise, WINDROW_KERNELS)
HWY_EXPORT(take_larger);
HWY_EXPORT(sum_elements);

void take_larger(float* to, const float* from, Index n) { HWY_DYNAMIC_DISPATCH(take_larger)(to, from, n); }
float sum_elements(const float* x, Index n) { return HWY_DYNAMIC_DISPATCH(sum_elements)(x, n); }

}  // namespace windrow
#endif  // HWY_ONCE
