// Kernels of products in the log and max-plus semirings.
#include <cmath>

#include "plugin/kernel_call.h"

namespace windrow::cuda {
namespace {

/// The operands of a product. The terms of its element (r, c) are x[r][i] + y[i][c].
struct Terms : OfXY {
  WINDROW_ON_DEVICE float term(Index r, Index i, Index c) const { return at(x, r, i) + at(y, i, c); }
  /// The number of the first NaN term, or of the first maximum if there is no NaN.
  WINDROW_ON_DEVICE Index best(Index r, Index c) const {
    Index best = 0;
    float top = term(r, 0, c);
    for (Index i = 1; i < x.width; ++i) {
      const float next = term(r, i, c);
      if (!exceeds(next, top)) continue;
      best = i;
      top = next;
    }
    return best;
  }
};

struct LogMatmul : Terms {
  static constexpr const char* name = "log_matmul";
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    const float top = term(r, best(r, c), c);
    if (top == lowest || top == -lowest) return top;
    float sum = 0;
    for (Index i = 0; i < x.width; ++i) sum += std::exp(term(r, i, c) - top);
    return top + std::log(sum);
  }
};

struct MaxMatmul : Terms {
  static constexpr const char* name = "max_matmul";
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const { return term(r, best(r, c), c); }
};

/// The operands, with the gradient of the maxima.
struct ChoiceGradients : Terms {
  In g;
  /// Whether best(r, c) is i. For most i, a few terms show that it is not.
  WINDROW_ON_DEVICE bool is_best(Index r, Index i, Index c) const {
    const float own = term(r, i, c);
    for (Index j = 0; j < i; ++j) {
      if (!exceeds(own, term(r, j, c))) return false;
    }
    for (Index j = i + 1; j < x.width; ++j) {
      if (exceeds(term(r, j, c), own)) return false;
    }
    return true;
  }
  void accesses(Accesses& to) const {
    Terms::accesses(to);
    to.reads(g);
  }
};

struct MaxMatmulGradient : ChoiceGradients {
  static constexpr const char* name = "max_matmul_gradient";
  WINDROW_ON_DEVICE float operator()(Index r, Index i) const {
    float sum = 0;
    for (Index c = 0; c < y.width; ++c) sum += is_best(r, i, c) ? at(g, r, c) : 0;
    return sum;
  }
};

struct MaxMatmulWeightGradient : ChoiceGradients {
  static constexpr const char* name = "max_matmul_weight_gradient";
  WINDROW_ON_DEVICE float operator()(Index i, Index c) const {
    LongSum sum;
    for (Index r = 0; r < x.rows; ++r) sum += is_best(r, i, c) ? at(g, r, c) : 0;
    return sum;
  }
};

struct ArgmaxMatmul : Terms {
  static constexpr const char* name = "argmax_matmul";
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const { return static_cast<float>(best(r, c)); }
};

/// The operands, with the result and its gradient.
struct TermGradients : Terms {
  In result, g;
  /// The gradient of element (r, c) of the result, times the share of term i in that element.
  WINDROW_ON_DEVICE float share(Index r, Index i, Index c) const {
    return at(g, r, c) * share_of(term(r, i, c), at(result, r, c));
  }
  void accesses(Accesses& to) const {
    Terms::accesses(to);
    to.reads(result);
    to.reads(g);
  }
};

struct LogMatmulGradient : TermGradients {
  static constexpr const char* name = "log_matmul_gradient";
  WINDROW_ON_DEVICE float operator()(Index r, Index i) const {
    float sum = 0;
    for (Index c = 0; c < y.width; ++c) sum += share(r, i, c);
    return sum;
  }
};

struct LogMatmulWeightGradient : TermGradients {
  static constexpr const char* name = "log_matmul_weight_gradient";
  WINDROW_ON_DEVICE float operator()(Index i, Index c) const {
    LongSum sum;
    for (Index r = 0; r < x.rows; ++r) sum += share(r, i, c);
    return sum;
  }
};

}  // namespace

const KernelEntry semiring_kernels[] = {
    each<LogMatmul>,    each<LogMatmulGradient>, each<LogMatmulWeightGradient>, each<MaxMatmul>,
    each<ArgmaxMatmul>, each<MaxMatmulGradient>, each<MaxMatmulWeightGradient>, {}};

}  // namespace windrow::cuda
