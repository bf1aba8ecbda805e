// Kernels that add items to rows of the result that indices choose: scattered rows, and gradients of segments.
#include "plugin/kernel_call.h"

namespace windrow::cuda {
namespace {

/// The sums to which items are added.
struct ScatteredSums {
  Out out;
  float* lost;  ///< rounding error of each element's last addition, corrected by the next (Kahan 1965); may be null

  WINDROW_ON_DEVICE void clear(Index r, Index c, bool keep) const {
    if (!keep) at(out, r, c) = 0;
    if (lost != nullptr) lost[r * out.width + c] = 0;
  }
  WINDROW_ON_DEVICE void add(Index r, Index c, float value) const {
    float& to = at(out, r, c);
    if (lost == nullptr) {
      to += value;
      return;
    }
    float& error = lost[r * out.width + c];
    const float whole = value - error, sum = to + whole;
    error = sum - sum == 0 ? (sum - to) - whole : 0;  // an infinite sum has no rounding error
    to = sum;
  }
  void accesses(Accesses& to) const {
    to.writes(out);
    if (lost != nullptr) to.writes(lost, out.rows * out.width);
  }
};

/// Adds items to the rows of their segments. A team owns a block of rows of the result, and goes through all items in
/// order, so the additions to an element have one order and need no atomics. Items with a bad segment are left out.
///
/// `Items` has a name, lists its accesses and finds the segment of an item. It adds an item to those rows of its
/// segment that are also in another segment, `owned`.
template <class Items>
struct Scatter {
  static constexpr const char* name = Items::name;
  Items items;
  Index count;  ///< of items
  ScatteredSums sums;
  Index block;  ///< rows of the result that a team owns
  bool add;

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    const int threads = team.threads();
    const Out& out = sums.out;
    const Index across = (out.width + threads - 1) / threads, blocks = (out.rows + block - 1) / block;
    auto bounds = team.template shared<std::int32_t>(2 * threads);
    for (Index task = team.index(); task < blocks * across; task += team.count()) {
      const Index left = task % across * threads, top = task / across * block;
      const Segment owned = {top, top + block < out.rows ? top + block : out.rows};
      if (!add || sums.lost != nullptr) {
        team.each([&](int thread) {
          const Index c = left + thread;
          for (Index r = owned.first; c < out.width && r < owned.last; ++r) sums.clear(r, c, add);
        });
      }
      for (Index begin = 0; begin < count; begin += threads) {
        team.sync();  // the previous bounds have been read
        team.each([&](int thread) {
          Segment segment = {0, 0};
          if (begin + thread < count) segment = items.segment(begin + thread);
          if (!segment.good(out.rows)) segment = {0, 0};
          bounds[2 * thread] = static_cast<std::int32_t>(segment.first);
          bounds[2 * thread + 1] = static_cast<std::int32_t>(segment.last);
        });
        team.sync();
        const int filled = count - begin < threads ? static_cast<int>(count - begin) : threads;
        team.each([&](int thread) {
          const Index c = left + thread;
          for (int i = 0; c < out.width && i < filled; ++i) {
            const Segment segment = {bounds[2 * i], bounds[2 * i + 1]};
            if (segment.first >= segment.last || segment.last <= owned.first || segment.first >= owned.last) continue;
            items.add(begin + i, c, segment, owned, sums);
          }
        });
      }
    }
  }
  void accesses(Accesses& to) const { to.all(items, sums); }
};

struct ScatterRows : OfXAndIndices {
  static constexpr const char* name = "scatter_rows";
  WINDROW_ON_DEVICE Segment segment(Index i) const { return {at(indices, i, 0), Index{at(indices, i, 0)} + 1}; }
  WINDROW_ON_DEVICE void add(Index i, Index c, Segment segment, Segment, const ScatteredSums& sums) const {
    sums.add(segment.first, c, at(x, i, c));
  }
};

/// An item is an index of a row. The index -1 (none) has a bad segment.
struct ScatterBags : OfXAndIndices {
  static constexpr const char* name = "scatter_bags";
  WINDROW_ON_DEVICE Segment segment(Index i) const {
    const Index row = at(indices, i / indices.width, i % indices.width);
    return {row, row + 1};
  }
  WINDROW_ON_DEVICE void add(Index i, Index c, Segment segment, Segment, const ScatteredSums& sums) const {
    sums.add(segment.first, c, at(x, i / indices.width, c));
  }
};

template <bool mean>
struct SegmentSpread : OfXAndIndices {
  static constexpr const char* name = mean ? "segment_spread_mean" : "segment_spread";
  WINDROW_ON_DEVICE Segment segment(Index i) const { return segment_of(indices, i); }
  WINDROW_ON_DEVICE void add(Index i, Index c, Segment segment, Segment owned, const ScatteredSums& sums) const {
    float value = at(x, i, c);
    if (mean) value /= static_cast<float>(segment.last - segment.first);
    const Index first = segment.first > owned.first ? segment.first : owned.first;
    const Index last = segment.last < owned.last ? segment.last : owned.last;
    for (Index r = first; r < last; ++r) sums.add(r, c, value);
  }
};

struct SegmentMaxGradient : OfXGAndIndices {
  static constexpr const char* name = "segment_max_gradient";
  WINDROW_ON_DEVICE Segment segment(Index i) const { return segment_of(indices, i); }
  WINDROW_ON_DEVICE void add(Index i, Index c, Segment segment, Segment owned, const ScatteredSums& sums) const {
    const Index top = first_maximum(x, c, segment);
    if (owned.first <= top && top < owned.last) sums.add(top, c, at(g, i, c));
  }
};

/// The number of indices of scatter_rows and scatter_bags. All may name one row, whose sum then is long.
Index indices_of(const Call& call) { return call.indices[0].rows * call.indices[0].width; }
bool may_be_long(const Call& call) { return indices_of(call) > 1024; }

/// Each team reads all items, so there are only as many teams as fill the device.
template <class Items>
int scatter(const Call& call, const Queue& queue, const Items& items, Index count, float* lost = nullptr) {
  const Out out = call.out;
  if (out.rows == 0 || out.width == 0) return cudaSuccess;
  const int threads = out.width <= 32 ? 32 : out.width <= 64 ? 64 : out.width <= 128 ? 128 : most_threads;
  const Index across = parts_of(out.width, threads), most_teams = Index{queue.multiprocessors} * 8;
  const Index blocks = std::min(out.rows, std::max(Index{1}, most_teams / across));
  const Index block = parts_of(out.rows, blocks);
  const LaunchShape shape = {std::min(parts_of(out.rows, block) * across, most_teams), threads,
                             2 * static_cast<std::size_t>(threads) * sizeof(std::int32_t)};
  return launch(queue, shape, Scatter<Items>{items, count, {out, lost}, block, adds(call)});
}

template <class Items>
int scatter_long(const Call& call, const Queue& queue) {
  float* const lost = may_be_long(call) ? reinterpret_cast<float*>(call.workspace) : nullptr;
  return scatter(call, queue, made_from<Items>(call), indices_of(call), lost);
}
template <class Items>
int scatter_segments(const Call& call, const Queue& queue) {
  return scatter(call, queue, made_from<Items>(call), call.in.back().rows);
}
std::size_t scatter_workspace(const Call& call) {
  return may_be_long(call) ? static_cast<std::size_t>(call.out.rows * call.out.width) * sizeof(float) : 0;
}

}  // namespace

const KernelEntry scatter_kernels[] = {{"scatter_rows", scatter_long<ScatterRows>, scatter_workspace},
                                       {"scatter_bags", scatter_long<ScatterBags>, scatter_workspace},
                                       {"segment_spread", scatter_segments<SegmentSpread<false>>},
                                       {"segment_spread_mean", scatter_segments<SegmentSpread<true>>},
                                       {"segment_max_gradient", scatter_segments<SegmentMaxGradient>},
                                       {}};

}  // namespace windrow::cuda
