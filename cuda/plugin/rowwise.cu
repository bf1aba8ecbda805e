// Kernels with a team for each row: sums, products, maxima and softmax.
#include <cmath>

#include "kernel_call.h"
#include "rowwise.h"

namespace windrow::cuda {
namespace {

/// One number for each row: the sum of Term::of(x, y) over its elements.
template <class Term>
struct SumOfTerms {
  static constexpr const char* name = Term::name;
  In x, y;
  Out out;
  bool add;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    for (Index r = team.index(); r < out.rows; r += team.count()) {
      const float sum = sum_of(team, x.width, [&](Index c) { return Term::of(at(x, r, c), at(y, r, c)); });
      team.each([&](int thread) {
        if (thread == 0) write(at(out, r, 0), sum, add);
      });
    }
  }
  template <class A>
  void accesses(A& to) const {
    to.reads(x);
    to.reads(y);
    to.writes(out);
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

template <class Term>
int sum_terms(const Call& call, const Queue& queue, const In& y) {
  const In x = call.in[0];
  return launch(queue, for_rows_of(queue, call.out, x.width), SumOfTerms<Term>{x, y, call.out, adds(call)});
}

struct SquaredDistanceGradient {
  static constexpr const char* name = "squared_distance_gradient";
  In x, y, g;
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const { return 2 * (at(x, r, c) - at(y, r, c)) * at(g, r, 0); }
  template <class A>
  void accesses(A& to) const {
    to.reads(x);
    to.reads(y);
    to.reads(g);
  }
};

struct RowMax {
  static constexpr const char* name = "row_max";
  In x;
  Out out;
  bool add;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    for (Index r = team.index(); r < out.rows; r += team.count()) {
      const float top = x.width == 0 ? 0 : max_of(team, x.width, [&](Index c) { return at(x, r, c); });
      team.each([&](int thread) {
        if (thread == 0) write(at(out, r, 0), top, add);
      });
    }
  }
  template <class A>
  void accesses(A& to) const {
    to.reads(x);
    to.writes(out);
  }
};

/// A column goes through a float, as its negative: columns are exact up to 2^24, which is more than a row has.
struct RowMaxGradient {
  static constexpr const char* name = "row_max_gradient";
  In x, g;
  Out out;
  bool add;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    for (Index r = team.index(); r < out.rows; r += team.count()) {
      const float top = max_of(team, x.width, [&](Index c) { return at(x, r, c); });
      const float first = -max_of(team, x.width, [&](Index c) {
        const float value = at(x, r, c);
        return value == top || value != value ? -static_cast<float>(c) : lowest;
      });
      team.each([&](int thread) {
        for (Index c = thread; c < out.width; c += team.threads()) {
          write(at(out, r, c), static_cast<float>(c) == first ? at(g, r, 0) : 0, add);
        }
      });
    }
  }
  template <class A>
  void accesses(A& to) const {
    to.reads(x);
    to.reads(g);
    to.writes(out);
  }
};

/// Each row: exp(x) divided by its sum, or the logarithm of that.
template <bool logarithm>
struct Softmax {
  static constexpr const char* name = logarithm ? "log_softmax" : "softmax";
  In x;
  Out out;
  bool add;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    for (Index r = team.index(); r < out.rows; r += team.count()) {
      const float top = max_of(team, x.width, [&](Index c) { return at(x, r, c); });
      const float sum = sum_of(team, x.width, [&](Index c) { return std::exp(at(x, r, c) - top); });
      const float log_sum = std::log(sum);
      team.each([&](int thread) {
        for (Index c = thread; c < out.width; c += team.threads()) {
          const float above = at(x, r, c) - top;
          write(at(out, r, c), logarithm ? above - log_sum : std::exp(above) / sum, add);
        }
      });
    }
  }
  template <class A>
  void accesses(A& to) const {
    to.reads(x);
    to.writes(out);
  }
};

/// Of the result y of softmax, or of its logarithm.
template <bool logarithm>
struct SoftmaxGradient {
  static constexpr const char* name = logarithm ? "log_softmax_gradient" : "softmax_gradient";
  In y, g;
  Out out;
  bool add;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    for (Index r = team.index(); r < out.rows; r += team.count()) {
      const float sum =
          sum_of(team, y.width, [&](Index c) { return logarithm ? at(g, r, c) : at(y, r, c) * at(g, r, c); });
      team.each([&](int thread) {
        for (Index c = thread; c < out.width; c += team.threads()) {
          const float of_y = at(y, r, c), of_g = at(g, r, c);
          write(at(out, r, c), logarithm ? of_g - std::exp(of_y) * sum : of_y * (of_g - sum), add);
        }
      });
    }
  }
  template <class A>
  void accesses(A& to) const {
    to.reads(y);
    to.reads(g);
    to.writes(out);
  }
};

}  // namespace

namespace kernel {

int row_sum(const Call& call, const Queue& queue) { return sum_terms<Itself>(call, queue, call.in[0]); }
int row_dot(const Call& call, const Queue& queue) { return sum_terms<Product>(call, queue, call.in[1]); }
int squared_distance(const Call& call, const Queue& queue) {
  return sum_terms<SquaredDifference>(call, queue, call.in[1]);
}
int squared_distance_gradient(const Call& call, const Queue& queue) {
  return run_each(call, queue, SquaredDistanceGradient{call.in[0], call.in[1], call.in[2]});
}

int row_max(const Call& call, const Queue& queue) {
  return launch(queue, for_rows_of(queue, call.out, call.in[0].width), RowMax{call.in[0], call.out, adds(call)});
}
int row_max_gradient(const Call& call, const Queue& queue) {
  return launch(queue, for_rows_of(queue, call.out, call.out.width),
                RowMaxGradient{call.in[0], call.in[1], call.out, adds(call)});
}

int softmax(const Call& call, const Queue& queue) {
  return launch(queue, for_rows_of(queue, call.out, call.out.width), Softmax<false>{call.in[0], call.out, adds(call)});
}
int log_softmax(const Call& call, const Queue& queue) {
  return launch(queue, for_rows_of(queue, call.out, call.out.width), Softmax<true>{call.in[0], call.out, adds(call)});
}
int softmax_gradient(const Call& call, const Queue& queue) {
  return launch(queue, for_rows_of(queue, call.out, call.out.width),
                SoftmaxGradient<false>{call.in[0], call.in[1], call.out, adds(call)});
}
int log_softmax_gradient(const Call& call, const Queue& queue) {
  return launch(queue, for_rows_of(queue, call.out, call.out.width),
                SoftmaxGradient<true>{call.in[0], call.in[1], call.out, adds(call)});
}

}  // namespace kernel
}  // namespace windrow::cuda
