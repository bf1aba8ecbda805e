// The kernels of the norm of gradients.
#include <algorithm>
#include <cmath>

#include "step_numbers.h"

namespace windrow::cuda {
namespace {

/// Column p of the result is for the p-th group of `part` elements. One team sums each group, so the order of additions
/// depends only on the shape.
struct SumSquares {
  static constexpr const char* name = "squared_norm";
  In x;
  Out out;  ///< two rows: sums of squares of the elements, and of the elements times 2^-96
  Index part;
  bool add;

  WINDROW_ON_DEVICE float sum(auto& team, Index p, float scale) const {
    const Index count = x.rows * x.width;
    const Index first = p * part, last = first + part < count ? first + part : count;
    auto sums = team.template values<float>();
    team.each([&](int thread) {
      LongSum sum;
      for (Index i = first + thread; i < last; i += team.threads()) {
        const Index r = i / x.width;
        const float scaled = at(x, r, i - r * x.width) * scale;
        sum += scaled * scaled;
      }
      sums[thread] = sum;
    });
    return team.sum(sums);
  }
  WINDROW_ON_DEVICE void operator()(auto& team) const {
    constexpr float scale = 0x1p-96f;
    for (Index p = team.index(); p < out.width; p += team.count()) {
      const float squares = sum(team, p, 1);
      const bool finite = squares <= std::numeric_limits<float>::max();  // the same for all threads of the team
      const float scaled = finite ? squares * scale * scale : sum(team, p, scale);
      team.each([&](int thread) {
        if (thread != 0) return;
        write(at(out, 0, p), squares, add);
        write(at(out, 1, p), scaled, add);
      });
    }
  }
  void accesses(Accesses& to) const { to.all(x, out); }
};

/// Element p of the result is the sum of row p.
struct SumBands {
  static constexpr const char* name = "squared_norm_sum";
  In x;
  Out out;  ///< one row
  bool add;

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    for (Index p = team.index(); p < out.width; p += team.count()) {
      auto sums = team.template values<float>();
      team.each([&](int thread) {
        LongSum sum;
        for (Index i = thread; i < x.width; i += team.threads()) sum += at(x, p, i);
        sums[thread] = sum;
      });
      const float sum = team.sum(sums);
      team.each([&](int thread) {
        if (thread == 0) write(at(out, 0, p), sum, add);
      });
    }
  }
  void accesses(Accesses& to) const { to.all(x, out); }
};

struct BandsOfElements {
  Index count, elements;
};
BandsOfElements bands_of_norm(const In& x) {
  constexpr Index most_sums = 1024;
  const Index elements = x.rows * x.width, part = std::max(parts_of(elements, most_sums), Index{most_threads} * 4);
  return {std::max<Index>(parts_of(elements, part), 1), part};
}

/// Each thread adds up all norms by itself, and then handles its own rows.
struct LimitNorm {
  static constexpr const char* name = "limit_norm";
  static constexpr int most_norms = 128;
  In numbers;
  const float* norms[most_norms];
  std::uint8_t widths[most_norms];
  int count;
  const double* before;  ///< the sum that the previous kernel left; null for the first kernel
  double* sum;           ///< where to leave it for the next kernel; null for the last one
  Out out;
  bool add;

  WINDROW_ON_DEVICE double sum_of_norms() const {
    double all = before == nullptr ? 0 : *before;
    for (int i = 0; i < count; ++i) {
      const bool scaled = widths[i] == 2 && !(norms[i][0] <= std::numeric_limits<float>::max());
      all += scaled ? static_cast<double>(norms[i][1]) * 0x1p192 : static_cast<double>(norms[i][0]);
    }
    return all;
  }
  /// Multiplies the scales so that gradients of this norm, before scaling, get one of at most h.most_norm.
  WINDROW_ON_DEVICE static void limit(StepNumbers& h, double norm) {
    if (h.scale == 0 || !(h.most_norm <= std::numeric_limits<float>::max())) return;
    const double scale = static_cast<double>(h.scale) * static_cast<double>(h.scale_again);
    norm *= std::fabs(scale);
    if (!(norm <= std::numeric_limits<double>::max())) {
      h.scale = not_a_number;
      return;
    }
    const double factor = static_cast<double>(h.most_norm) / (norm + 1e-6);
    if (factor >= 1) return;
    const double all = std::fabs(scale * factor);
    if (all >= 0x1p-100) {
      h.scale = static_cast<float>(static_cast<double>(h.scale) * factor);
    } else {
      h.scale_again = static_cast<float>(std::sqrt(all));
      h.scale = h.scale < 0 ? -h.scale_again : h.scale_again;
    }
  }

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    team.each([&](int thread) {
      if (team.index() != 0) return;
      if (sum != nullptr) {
        if (thread == 0) *sum = sum_of_norms();
        return;
      }
      for (Index r = thread; r < out.rows; r += team.threads()) {
        StepNumbers h = Numbers{numbers.data + r * numbers.stride}.read();
        limit(h, std::sqrt(sum_of_norms()));
        for (Index c = 0; c < StepNumbers::count; ++c) write(at(out, r, c), (&h.rate)[c], add);
      }
    });
  }
  void accesses(Accesses& to) const {
    to.reads(numbers);
    for (int i = 0; i < count; ++i) to.reads(norms[i], widths[i]);
    if (before != nullptr) to.reads(before, 1);
    sum != nullptr ? to.writes(sum, 1) : to.writes(out);
  }
};
static_assert(sizeof(LimitNorm) < 4096);  // the limit for a kernel's arguments

int squared_norm(const Call& call, const Queue& queue) {
  const In x = flat(call.in[0], call.in[0].dense());
  const BandsOfElements bands = bands_of_norm(x);
  if (bands.count == 1) {
    return launch(queue, {1}, SumSquares{x, {call.out.data, 2, 1, 1}, bands.elements, adds(call)});
  }
  const Out sums = {reinterpret_cast<float*>(call.workspace), 2, bands.count, bands.count};
  if (const int error = launch(queue, {bands.count}, SumSquares{x, sums, bands.elements, false});
      error != cudaSuccess) {
    return error;
  }
  return launch(queue, {2}, SumBands{sums, call.out, adds(call)});
}
std::size_t squared_norm_workspace(const Call& call) {
  const BandsOfElements bands = bands_of_norm(call.in[0]);
  return bands.count == 1 ? 0 : static_cast<std::size_t>(2 * bands.count) * sizeof(float);
}
/// If the norms do not fit into the arguments of one kernel, earlier kernels add up the others.
int limit_norm(const Call& call, const Queue& queue) {
  double* const sum = reinterpret_cast<double*>(call.workspace);
  LimitNorm limit{call.in[0], {}, {}, 0, nullptr, sum, call.out, adds(call)};
  for (std::size_t next = 1;;) {
    for (limit.count = 0; next < call.in.size() && limit.count < LimitNorm::most_norms; ++next) {
      limit.widths[limit.count] = static_cast<std::uint8_t>(call.in[next].width);
      limit.norms[limit.count++] = call.in[next].data;
    }
    if (next == call.in.size()) limit.sum = nullptr;
    if (const int error = launch(queue, {1}, limit); error != cudaSuccess || limit.sum == nullptr) return error;
    limit.before = sum;
  }
}
std::size_t limit_norm_workspace(const Call& call) {
  return call.in.size() - 1 <= LimitNorm::most_norms ? 0 : sizeof(double);
}

}  // namespace

const KernelEntry gradient_norm_kernels[] = {
    {"squared_norm", squared_norm, squared_norm_workspace}, {"limit_norm", limit_norm, limit_norm_workspace}, {}};

}  // namespace windrow::cuda
