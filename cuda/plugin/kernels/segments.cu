// Kernels that reduce segments of rows.
#include "rowwise.h"

namespace windrow::cuda {
namespace {

struct SegmentSum {
  static constexpr const char* name = "segment_sum";
  WINDROW_ON_DEVICE static float of(const In& x, Index c, Segment segment) {
    LongSum sum;
    for (Index r = segment.first; r < segment.last; ++r) sum += at(x, r, c);
    return sum;
  }
};
struct SegmentMean {
  static constexpr const char* name = "segment_mean";
  WINDROW_ON_DEVICE static float of(const In& x, Index c, Segment segment) {
    return SegmentSum::of(x, c, segment) / static_cast<float>(segment.last - segment.first);
  }
};
struct SegmentMax {
  static constexpr const char* name = "segment_max";
  WINDROW_ON_DEVICE static float of(const In& x, Index c, Segment segment) {
    return at(x, first_maximum(x, c, segment), c);
  }
};
struct SegmentArgmax {
  static constexpr const char* name = "segment_argmax";
  WINDROW_ON_DEVICE static float of(const In& x, Index c, Segment segment) {
    return static_cast<float>(first_maximum(x, c, segment) - segment.first);
  }
};

template <class Reduction>
struct ReducedSegment : OfXAndIndices {
  static constexpr const char* name = Reduction::name;
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    const Segment segment = segment_of(indices, r);
    if (!segment.good(x.rows)) return not_a_number;
    return segment.first == segment.last ? 0 : Reduction::of(x, c, segment);
  }
};

struct GatherSum {
  static constexpr const char* name = "gather_sum";
  In x;
  Indices bounds, rows;
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    const Segment segment = segment_of(bounds, r);
    if (!segment.good(rows.rows)) return not_a_number;
    LongSum sum;
    for (Index q = segment.first; q < segment.last; ++q) {
      const Index row = at(rows, q, 0);
      if (!within(row, x.rows)) return not_a_number;
      sum += at(x, row, c);
    }
    return sum;
  }
  void accesses(Accesses& to) const { to.all(x, bounds, rows); }
};

struct GatherWeightedSum {
  static constexpr const char* name = "gather_weighted_sum";
  In x, factors;
  Indices bounds, pairs;
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    const Segment segment = segment_of(bounds, r);
    if (!segment.good(pairs.rows)) return not_a_number;
    LongSum sum;
    for (Index q = segment.first; q < segment.last; ++q) {
      const Index row = at(pairs, q, 0), factor = at(pairs, q, 1);
      if (!within(row, x.rows) || !within(factor, factors.rows)) return not_a_number;
      sum += at(x, row, c) * at(factors, factor, 0);
    }
    return sum;
  }
  void accesses(Accesses& to) const { to.all(x, factors, bounds, pairs); }
};

struct GatherDot {
  static constexpr const char* name = "gather_dot";
  In x, y;
  Indices bounds, pairs;
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const float sum = of_segment(team, segment_of(bounds, r));
    return [sum](Index) { return sum; };
  }
  WINDROW_ON_DEVICE float of_segment(auto& team, Segment segment) const {
    if (!segment.good(pairs.rows)) return not_a_number;
    LongSum sum;
    for (Index q = segment.first; q < segment.last; ++q) {
      const Index i = at(pairs, q, 0), j = at(pairs, q, 1);
      if (!within(i, x.rows) || !within(j, y.rows)) return not_a_number;
      sum += sum_of(team, x.width, [&](Index c) { return at(x, i, c) * at(y, j, c); });
    }
    return sum;
  }
  void accesses(Accesses& to) const { to.all(x, y, bounds, pairs); }
};

}  // namespace

const KernelEntry segments_kernels[] = {each<ReducedSegment<SegmentSum>>,
                                        each<ReducedSegment<SegmentMean>>,
                                        each<ReducedSegment<SegmentMax>>,
                                        each<ReducedSegment<SegmentArgmax>>,
                                        each<GatherSum>,
                                        each<GatherWeightedSum>,
                                        row_by_row<GatherDot>,
                                        {}};

}  // namespace windrow::cuda
