// Kernels of cross-entropy and dropout.
#include <cmath>

#include "kernel_call.h"
#include "rowwise.h"
#include "windrow/ops/philox.h"

namespace windrow::cuda {
namespace {

/// -1 is the label of a row without one.
WINDROW_ON_DEVICE bool good_label(Index label, Index width) { return -1 <= label && label < width; }

struct CrossEntropy {
  static constexpr const char* name = "softmax_cross_entropy";
  In x;
  Indices labels;
  Out out;
  bool add;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    for (Index r = team.index(); r < out.rows; r += team.count()) {
      const Index label = at(labels, r, 0);
      float loss = good_label(label, x.width) ? 0 : not_a_number;
      if (within(label, x.width)) {
        const float top = max_of(team, x.width, [&](Index c) { return at(x, r, c); });
        const float sum = sum_of(team, x.width, [&](Index c) { return std::exp(at(x, r, c) - top); });
        loss = std::log(sum) - (at(x, r, label) - top);
      }
      team.each([&](int thread) {
        if (thread == 0) write(at(out, r, 0), loss, add);
      });
    }
  }
  template <class A>
  void accesses(A& to) const {
    to.reads(x);
    to.reads(labels);
    to.writes(out);
  }
};

struct CrossEntropyGradient {
  static constexpr const char* name = "softmax_cross_entropy_gradient";
  In x, g;
  Indices labels;
  Out out;
  bool add;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    for (Index r = team.index(); r < out.rows; r += team.count()) {
      const Index label = at(labels, r, 0);
      const bool labelled = within(label, x.width);
      float top = 0, sum = 1;
      if (labelled) {
        top = max_of(team, x.width, [&](Index c) { return at(x, r, c); });
        sum = sum_of(team, x.width, [&](Index c) { return std::exp(at(x, r, c) - top); });
      }
      const float otherwise = good_label(label, x.width) ? 0 : not_a_number;
      team.each([&](int thread) {
        for (Index c = thread; c < out.width; c += team.threads()) {
          const float value =
              labelled ? at(g, r, 0) * (std::exp(at(x, r, c) - top) / sum - (c == label ? 1 : 0)) : otherwise;
          write(at(out, r, c), value, add);
        }
      });
    }
  }
  template <class A>
  void accesses(A& to) const {
    to.reads(x);
    to.reads(g);
    to.reads(labels);
    to.writes(out);
  }
};

/// Four columns share the words of one counter of Philox, so a thread computes four. The counter has the site and the
/// block of columns, 16 bits each, and the row's three keys. The key is the seed.
struct Dropout {
  static constexpr const char* name = "dropout";
  In x;
  Indices keys;  ///< 3 for each row, or 5, of which the last two are the row's seed
  Out out;
  bool add;
  std::uint64_t seed;
  std::uint32_t site;
  std::uint32_t threshold;  ///< for the upper 24 bits of a word; below it the element is dropped
  float factor;

  template <class Team>
  WINDROW_ON_DEVICE void operator()(Team& team) const {
    const Index blocks = (out.width + 3) / 4;
    for_elements(team, out.rows, blocks, [&](Index r, Index block) {
      const std::int32_t* of_row = keys.row(r);
      const auto word = [&](int i) { return static_cast<std::uint32_t>(of_row[i]); };
      const PhiloxKey key = keys.width == 5 ? PhiloxKey{word(3), word(4)} : philox_key(seed);
      const PhiloxCounter words =
          philox({site * 65536 + static_cast<std::uint32_t>(block), word(0), word(1), word(2)}, key);
      const Index left = 4 * block;
      for (int i = 0; i < 4 && left + i < out.width; ++i) {
        const bool dropped = words[static_cast<std::size_t>(i)] >> 8 < threshold;
        write(at(out, r, left + i), dropped ? 0 : factor * at(x, r, left + i), add);
      }
    });
  }
  template <class A>
  void accesses(A& to) const {
    to.reads(x);
    to.reads(keys);
    to.writes(out);
  }
};

}  // namespace

namespace kernel {

int softmax_cross_entropy(const Call& call, const Queue& queue) {
  const In x = call.in[0];
  return launch(queue, for_rows_of(queue, call.out, x.width), CrossEntropy{x, call.indices[0], call.out, adds(call)});
}
int softmax_cross_entropy_gradient(const Call& call, const Queue& queue) {
  const In x = call.in[0];
  return launch(queue, for_rows_of(queue, call.out, x.width),
                CrossEntropyGradient{x, call.in[1], call.indices[0], call.out, adds(call)});
}

int dropout(const Call& call, const Queue& queue) {
  const Out out = call.out;
  const double rate = call.attributes.values[0];
  const auto& sizes = call.attributes.sizes;
  const Dropout made = {.x = call.in[0],
                        .keys = call.indices[0],
                        .out = out,
                        .add = adds(call),
                        .seed = static_cast<std::uint64_t>(sizes[0]),
                        .site = static_cast<std::uint32_t>(sizes[1]),
                        .threshold = static_cast<std::uint32_t>(std::ceil(rate * 0x1p24)),
                        .factor = static_cast<float>(1 / (1 - rate))};
  return launch(queue, for_elements(queue, out.rows * parts_of(out.width, 4)), made);
}

}  // namespace kernel
}  // namespace windrow::cuda
