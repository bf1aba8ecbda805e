// Kernels with a team for each row: sums, products, maxima and softmax.
#include "rowwise.h"

namespace windrow::cuda {
namespace {

/// One number for each row: the sum of Term::of(x, y) over its elements.
template <class Term>
struct SumOfTerms : OfXY {
  static constexpr const char* name = Term::name;
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const float sum = sum_of(team, x.width, [&](Index c) { return Term::of(at(x, r, c), at(y, r, c)); });
    return [sum](Index) { return sum; };
  }
};

struct Itself {
  static constexpr const char* name = "row_sum";
  WINDROW_ON_DEVICE static float of(float x, float) { return x; }
};
struct Product {
  static constexpr const char* name = "row_dot";
  WINDROW_ON_DEVICE static float of(float x, float y) { return x * y; }
};
struct SquaredDifference {
  static constexpr const char* name = "squared_distance";
  WINDROW_ON_DEVICE static float of(float x, float y) { return (x - y) * (x - y); }
};

struct SquaredDistanceGradient {
  static constexpr const char* name = "squared_distance_gradient";
  In x, y, g;
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const { return 2 * (at(x, r, c) - at(y, r, c)) * at(g, r, 0); }
  void accesses(Accesses& to) const { to.all(x, y, g); }
};

struct RowMax : OfX {
  static constexpr const char* name = "row_max";
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const float top = x.width == 0 ? 0 : max_of(team, x.width, [&](Index c) { return at(x, r, c); });
    return [top](Index) { return top; };
  }
};

/// The reduction passes column numbers as negative floats. These are exact up to 2^24, and rows have fewer columns.
struct RowMaxGradient : OfXG {
  static constexpr const char* name = "row_max_gradient";
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const float top = max_of(team, x.width, [&](Index c) { return at(x, r, c); });
    const float first = -max_of(team, x.width, [&](Index c) {
      const float value = at(x, r, c);
      return value == top || value != value ? -static_cast<float>(c) : lowest;
    });
    return [first, g = g, r](Index c) { return static_cast<float>(c) == first ? at(g, r, 0) : 0; };
  }
};

/// For each row: exp(x) divided by the sum of exp(x), or the logarithm of this quotient.
template <bool logarithm>
struct Softmax : OfX {
  static constexpr const char* name = logarithm ? "log_softmax" : "softmax";
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const ExpSum row = exp_sum_of(team, x, r);
    const float log_sum = std::log(row.sum);
    return [row, log_sum, x = x, r](Index c) {
      const float above = at(x, r, c) - row.top;
      return logarithm ? above - log_sum : std::exp(above) / row.sum;
    };
  }
};

struct LogSumExp : OfX {
  static constexpr const char* name = "log_sum_exp";
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const ExpSum row = exp_sum_of(team, x, r);
    const bool infinite = row.top == lowest || row.top == -lowest;
    const float value = x.width == 0 ? 0 : infinite ? row.top : row.top + std::log(row.sum);
    return [value](Index) { return value; };
  }
};

struct LogSumExpGradient {
  static constexpr const char* name = "log_sum_exp_gradient";
  In x, result, g;
  /// The exponentials contain the rounding error of the result, so they are divided by their sum.
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const float of_row = at(result, r, 0);
    const float sum = sum_of(team, x.width, [&](Index c) { return share_of(at(x, r, c), of_row); });
    const float factor = at(g, r, 0) / (sum > 0 && sum < -lowest ? sum : 1);
    return [x = x, r, of_row, factor](Index c) { return factor * share_of(at(x, r, c), of_row); };
  }
  void accesses(Accesses& to) const { to.all(x, result, g); }
};

/// A row is normalised as (x - centre) * factor.
struct RowNorm {
  float centre, factor;
};
/// The centre is the mean of the row, or 0.
template <bool about_mean, class Team>
WINDROW_ON_DEVICE RowNorm norm_of(Team& team, const In& x, Index r, float epsilon) {
  const auto n = static_cast<float>(x.width);
  const float centre = about_mean ? mean_of(team, x.width, [&](Index c) { return at(x, r, c); }) : 0;
  const float squares = sum_of(team, x.width, [&](Index c) {
    const float above = at(x, r, c) - centre;
    return above * above;
  });
  return {centre, 1 / std::sqrt(squares / n + epsilon)};
}

template <bool about_mean>
struct Normalised : OfX {
  static constexpr const char* name = about_mean ? "layer_norm" : "rms_norm";
  float epsilon;
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const RowNorm norm = norm_of<about_mean>(team, x, r, epsilon);
    return [norm, x = x, r](Index c) { return (at(x, r, c) - norm.centre) * norm.factor; };
  }
};

template <bool about_mean>
struct NormalisedGradient : OfXG {
  static constexpr const char* name = about_mean ? "layer_norm_gradient" : "rms_norm_gradient";
  float epsilon;
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const RowNorm norm = norm_of<about_mean>(team, x, r, epsilon);
    const auto n = static_cast<float>(x.width);
    const float mean = about_mean ? mean_of(team, x.width, [&](Index c) { return at(g, r, c); }) : 0;
    const float dot =
        sum_of(team, x.width, [&](Index c) { return (at(x, r, c) - norm.centre) * (at(g, r, c) - mean); });
    const float slope = norm.factor * norm.factor * dot / n;
    return [norm, mean, slope, x = x, g = g, r](Index c) {
      return norm.factor * (at(g, r, c) - mean - (at(x, r, c) - norm.centre) * slope);
    };
  }
};

/// Takes the result y of softmax, or its logarithm.
template <bool logarithm>
struct SoftmaxGradient {
  static constexpr const char* name = logarithm ? "log_softmax_gradient" : "softmax_gradient";
  In y, g;
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const float sum =
        sum_of(team, y.width, [&](Index c) { return logarithm ? at(g, r, c) : at(y, r, c) * at(g, r, c); });
    return [sum, y = y, g = g, r](Index c) {
      const float of_y = at(y, r, c), of_g = at(g, r, c);
      return logarithm ? of_g - std::exp(of_y) * sum : of_y * (of_g - sum);
    };
  }
  void accesses(Accesses& to) const { to.all(y, g); }
};

int row_sum(const Call& call, const Queue& queue) {
  return run_rows(call, queue, SumOfTerms<Itself>{call.in[0], call.in[0]});
}

}  // namespace

const KernelEntry rowwise_kernels[] = {{"row_sum", row_sum},
                                       row_by_row<SumOfTerms<Product>>,
                                       row_by_row<SumOfTerms<SquaredDifference>>,
                                       each<SquaredDistanceGradient>,
                                       row_by_row<RowMax>,
                                       row_by_row<RowMaxGradient>,
                                       row_by_row<Normalised<true>>,
                                       row_by_row<NormalisedGradient<true>>,
                                       row_by_row<Normalised<false>>,
                                       row_by_row<NormalisedGradient<false>>,
                                       row_by_row<LogSumExp>,
                                       row_by_row<LogSumExpGradient>,
                                       row_by_row<Softmax<false>>,
                                       row_by_row<Softmax<true>>,
                                       row_by_row<SoftmaxGradient<false>>,
                                       row_by_row<SoftmaxGradient<true>>,
                                       {}};

}  // namespace windrow::cuda
