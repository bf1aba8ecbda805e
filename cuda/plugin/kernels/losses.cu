// Kernels of losses with labels, and of dropout.
#include "rowwise.h"
#include "windrow/ops/internal/dropout.h"

namespace windrow::cuda {
namespace {

/// A row without a label has the label -1.
WINDROW_ON_DEVICE bool good_label(Index label, Index width) { return -1 <= label && label < width; }

struct CrossEntropy : OfXAndIndices {
  static constexpr const char* name = "softmax_cross_entropy";
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const Index label = at(indices, r, 0);
    float loss = good_label(label, x.width) ? 0 : not_a_number;
    if (within(label, x.width)) {
      const ExpSum row = exp_sum_of(team, x, r);
      loss = std::log(row.sum) - (at(x, r, label) - row.top);
    }
    return [loss](Index) { return loss; };
  }
};

struct CrossEntropyGradient : OfXGAndIndices {
  static constexpr const char* name = "softmax_cross_entropy_gradient";
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const Index label = at(indices, r, 0);
    const bool labelled = within(label, x.width);
    const ExpSum row = labelled ? exp_sum_of(team, x, r) : ExpSum{0, 1};
    const float otherwise = good_label(label, x.width) ? 0 : not_a_number;
    return [label, labelled, row, otherwise, x = x, g = g, r](Index c) {
      if (!labelled) return otherwise;
      return at(g, r, 0) * (std::exp(at(x, r, c) - row.top) / row.sum) - (c == label ? at(g, r, 0) : 0);
    };
  }
};

/// Cross entropy with smoothed labels.
struct SmoothedCrossEntropy : OfXAndIndices {
  static constexpr const char* name = "smoothed_cross_entropy";
  float epsilon;
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const Index label = at(indices, r, 0);
    float loss = good_label(label, x.width) ? 0 : not_a_number;
    if (within(label, x.width)) {
      const ExpSum row = exp_sum_of(team, x, r);
      loss = std::log(row.sum) + (1 - epsilon) * (row.top - at(x, r, label));
      const float below = sum_of(team, x.width, [&](Index c) { return row.top - at(x, r, c); });
      if (epsilon > 0) loss += epsilon * (below / static_cast<float>(x.width));  // 0 * inf is not a number
    }
    return [loss](Index) { return loss; };
  }
};

struct SmoothedCrossEntropyGradient : OfXGAndIndices {
  static constexpr const char* name = "smoothed_cross_entropy_gradient";
  float epsilon;
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const Index label = at(indices, r, 0);
    const bool labelled = within(label, x.width);
    const ExpSum row = labelled ? exp_sum_of(team, x, r) : ExpSum{0, 1};
    const float otherwise = good_label(label, x.width) ? 0 : not_a_number;
    const float of_others = epsilon / static_cast<float>(x.width), of_label = 1 - epsilon;
    return [label, labelled, row, otherwise, of_others, of_label, x = x, g = g, r](Index c) {
      if (!labelled) return otherwise;
      const float of_all = at(g, r, 0) * (std::exp(at(x, r, c) - row.top) / row.sum - of_others);
      return c == label ? of_all - at(g, r, 0) * of_label : of_all;
    };
  }
};

/// The largest score except that of the label; NaN if one of them is NaN, `lowest` if there is no other score.
WINDROW_ON_DEVICE float rival_of(auto& team, const In& x, Index r, Index label) {
  return max_of(team, x.width, [&](Index c) { return c == label ? lowest : at(x, r, c); });
}

struct Hinge : OfXAndIndices {
  static constexpr const char* name = "hinge";
  float margin;
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const Index label = at(indices, r, 0);
    float loss = good_label(label, x.width) ? 0 : not_a_number;
    if (within(label, x.width) && x.width > 1) {
      const float short_by = margin + rival_of(team, x, r, label) - at(x, r, label);
      loss = short_by <= 0 ? 0 : short_by;  // a NaN stays one
    }
    return [loss](Index) { return loss; };
  }
};

/// The reduction passes column numbers as floats, as in RowMaxGradient.
struct HingeGradient : OfXGAndIndices {
  static constexpr const char* name = "hinge_gradient";
  float margin;
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const Index label = at(indices, r, 0);
    const bool labelled = within(label, x.width);
    const float rival = labelled ? rival_of(team, x, r, label) : 0;
    const float first =
        labelled ? -max_of(team, x.width,
                           [&](Index c) {
                             const float here = at(x, r, c);
                             return c != label && (here == rival || here != here) ? -static_cast<float>(c) : lowest;
                           })
                 : 0;
    const bool met = labelled && (x.width == 1 || margin + rival - at(x, r, label) <= 0);
    const float otherwise = good_label(label, x.width) ? 0 : not_a_number;
    return [label, labelled, met, first, otherwise, g = g, r](Index c) {
      if (!labelled || met) return otherwise;
      if (c == label) return -at(g, r, 0);
      return static_cast<float>(c) == first ? at(g, r, 0) : 0;
    };
  }
};

/// A thread computes the four columns that use the four words of one counter; see dropout.h.
struct Dropout {
  static constexpr const char* name = "dropout";
  In x;
  Indices keys;  ///< 3 for each row, or 5, of which the last two are the row's seed
  Out out;
  bool add;
  std::uint64_t seed;
  std::uint32_t site;
  std::uint32_t threshold;  ///< an element is dropped if the upper 24 bits of its word are below it
  float factor;

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    const Index blocks = (out.width + 3) / 4;
    for_elements(team, out.rows, blocks, [&](Index r, Index block) {
      const std::int32_t* of_row = keys.row(r);
      const auto word = [&](int i) { return static_cast<std::uint32_t>(of_row[i]); };
      const PhiloxKey key = keys.width == 5 ? seed_of(of_row) : philox_key(seed);
      const PhiloxCounter words =
          philox({site * 65536 + static_cast<std::uint32_t>(block), word(0), word(1), word(2)}, key);
      const Index left = 4 * block;
      for (int i = 0; i < 4 && left + i < out.width; ++i) {
        const bool dropped = words[static_cast<std::size_t>(i)] >> 8 < threshold;
        write(at(out, r, left + i), dropped ? 0 : factor * at(x, r, left + i), add);
      }
    });
  }
  void accesses(Accesses& to) const { to.all(x, keys, out); }
};

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
                        .threshold = dropout_threshold(rate),
                        .factor = static_cast<float>(1 / (1 - rate))};
  return launch(queue, shape_for_elements(queue, out.rows * parts_of(out.width, 4)), made);
}

}  // namespace

const KernelEntry losses_kernels[] = {row_by_row<CrossEntropy>,
                                      row_by_row<CrossEntropyGradient>,
                                      row_by_row<SmoothedCrossEntropy>,
                                      row_by_row<SmoothedCrossEntropyGradient>,
                                      row_by_row<Hinge>,
                                      row_by_row<HingeGradient>,
                                      {"dropout", dropout},
                                      {}};

}  // namespace windrow::cuda
