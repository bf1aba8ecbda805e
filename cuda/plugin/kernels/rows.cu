// Kernels that move rows and columns, or one element of each row.
#include "plugin/kernel_call.h"

namespace windrow::cuda {
namespace {

struct GatherRows : OfXAndIndices {
  static constexpr const char* name = "gather_rows";
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    const Index row = at(indices, r, 0);
    return within(row, x.rows) ? at(x, row, c) : not_a_number;
  }
};

struct EmbeddingBag : OfXAndIndices {
  static constexpr const char* name = "embedding_bag";
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    float sum = 0;
    for (Index i = 0; i < indices.width; ++i) {
      const Index row = at(indices, r, i);
      if (row != -1) sum += within(row, x.rows) ? at(x, row, c) : not_a_number;
    }
    return sum;
  }
};

struct GatherWhere {
  static constexpr const char* name = "gather_where";
  In x, y;
  Indices from;  ///< the row, and the value that x must have there
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    const Index row = at(from, r, 0);
    if (!within(row, x.rows)) return not_a_number;
    return at(x, row, c) == static_cast<float>(at(from, r, 1)) ? at(y, row, c) : 0;
  }
  void accesses(Accesses& to) const { to.all(x, y, from); }
};

/// Copies parts side by side.
struct Concat {
  static constexpr const char* name = "concat";
  static constexpr int most_parts = 16;
  In parts[most_parts];
  int count;
  Out out;
  bool add;

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    Index left = 0;
    for (int p = 0; p < count; ++p) {
      const In& part = parts[p];
      for_elements(team, part.rows, part.width,
                   [&](Index r, Index c) { write(at(out, r, left + c), at(part, r, c), add); });
      left += part.width;
    }
  }
  void accesses(Accesses& to) const {
    for (int p = 0; p < count; ++p) to.reads(parts[p]);
    to.writes(out);
  }
};

/// Columns of x from `begin` on, which may be negative; zeros outside x.
struct Columns : OfX {
  static constexpr const char* name = "columns";
  Index begin;
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    return within(begin + c, x.width) ? at(x, r, begin + c) : 0;
  }
};

/// A row without a label has the label -1.
struct Pick : OfXAndIndices {
  static constexpr const char* name = "pick";
  WINDROW_ON_DEVICE float operator()(Index r, Index) const {
    const Index label = at(indices, r, 0);
    if (label == -1) return 0;
    return within(label, x.width) ? at(x, r, label) : not_a_number;
  }
};

struct PickGradient {
  static constexpr const char* name = "pick_gradient";
  In g;
  Indices labels;
  Index width;
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    const Index label = at(labels, r, 0);
    if (label < -1 || label >= width) return not_a_number;
    return c == label ? at(g, r, 0) : 0;
  }
  void accesses(Accesses& to) const { to.all(g, labels); }
};

int concat(const Call& call, const Queue& queue) {
  Out rest = call.out;
  for (std::size_t next = 0; next < call.in.size();) {
    Concat part{.parts = {}, .count = 0, .out = rest, .add = adds(call)};
    Index width = 0, widest = 0;
    for (; next < call.in.size() && part.count < Concat::most_parts; ++next) {
      part.parts[part.count++] = call.in[next];
      width += call.in[next].width;
      widest = std::max(widest, call.in[next].width);
    }
    part.out.width = width;
    if (const int error = launch(queue, shape_for_elements(queue, rest.rows * widest), part); error != cudaSuccess) {
      return error;
    }
    rest.data += width;
    rest.width -= width;
  }
  return cudaSuccess;
}
int slice(const Call& call, const Queue& queue) {
  return run_each(call, queue, Columns{call.in[0], call.attributes.sizes[0]});
}
int place(const Call& call, const Queue& queue) {
  return run_each(call, queue, Columns{call.in[0], -call.attributes.sizes[0]});
}
int pick_gradient(const Call& call, const Queue& queue) {
  return run_each(call, queue, PickGradient{call.in[0], call.indices[0], call.out.width});
}

}  // namespace

const KernelEntry rows_kernels[] = {each<GatherRows>,
                                    {"embedding", run_each<GatherRows>},
                                    each<EmbeddingBag>,
                                    each<GatherWhere>,
                                    each<Pick>,
                                    {"concat", concat},
                                    {"slice", slice},
                                    {"place", place},
                                    {"pick_gradient", pick_gradient},
                                    {}};

}  // namespace windrow::cuda
