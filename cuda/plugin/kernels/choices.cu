// Kernels that find the largest elements of rows or draw random ones.
#include "rowwise.h"
#include "windrow/ops/internal/philox.h"

namespace windrow::cuda {
namespace {

/// Computes op::largest: the `count` largest elements of each column of the matrix that is stored in a row.
struct Chosen : OfX {
  Index count, columns;
  bool by_place;

  WINDROW_ON_DEVICE Index rows() const { return x.width / columns; }
  WINDROW_ON_DEVICE float element(Index r, Index c, Index place) const { return at(x, r, place * columns + c); }
  /// How many elements of the column are chosen before this one. NaN comes first; equal elements keep their order.
  WINDROW_ON_DEVICE Index rank(Index r, Index c, Index place) const {
    const float own = element(r, c, place);
    Index before = 0;
    for (Index i = 0; i < rows(); ++i) {
      const float other = element(r, c, i);
      const bool larger = own == own && !(other <= own), equal = other == own || (own != own && other != other);
      if (larger || (equal && i < place)) ++before;
    }
    return before;
  }
  /// The row of the result that gets the element at that place; -1 if it is not chosen.
  WINDROW_ON_DEVICE Index row_of(Index r, Index c, Index place) const {
    const Index own = rank(r, c, place);
    if (own >= count || !by_place) return own < count ? own : -1;
    Index before = 0;
    for (Index i = 0; i < place; ++i) before += rank(r, c, i) < count ? 1 : 0;
    return before;
  }
  /// The place of the element that this row of the result gets.
  WINDROW_ON_DEVICE Index place_of(Index r, Index c, Index row) const {
    Index place = 0;
    while (place + 1 < rows() && row_of(r, c, place) != row) ++place;
    return place;
  }
};

struct TopK : Chosen {
  static constexpr const char* name = "top_k";
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    return element(r, c % columns, place_of(r, c % columns, c / columns));
  }
};

struct ArgTopK : Chosen {
  static constexpr const char* name = "arg_top_k";
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    return static_cast<float>(place_of(r, c % columns, c / columns));
  }
};

struct TopKGradient : Chosen {
  static constexpr const char* name = "top_k_gradient";
  In g;
  WINDROW_ON_DEVICE float operator()(Index r, Index c) const {
    const Index row = row_of(r, c % columns, c / columns);
    return row < 0 ? 0 : at(g, r, row * columns + c % columns);
  }
  void accesses(Accesses& to) const {
    Chosen::accesses(to);
    to.reads(g);
  }
};

/// The first column with the maximum or a NaN. The reduction passes column numbers as floats, as in RowMaxGradient.
template <class Team, class Value>
WINDROW_ON_DEVICE float first_maximum(Team& team, Index width, const Value& value) {
  const float top = max_of(team, width, value);
  return -max_of(team, width, [&](Index c) {
    const float here = value(c);
    return here == top || here != here ? -static_cast<float>(c) : lowest;
  });
}

struct Argmax : OfX {
  static constexpr const char* name = "argmax";
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const float first = first_maximum(team, x.width, [&](Index c) { return at(x, r, c); });
    return [first](Index) { return first; };
  }
};

struct Sample {
  static constexpr const char* name = "sample";
  In x;
  Indices keys;
  std::uint64_t seed;
  std::uint32_t site;
  WINDROW_ON_DEVICE auto operator()(auto& team, Index r) const {
    const float first = first_maximum(team, x.width, [&](Index c) {
      const auto word = [&](int i) { return static_cast<std::uint32_t>(at(keys, r, i)); };
      const PhiloxCounter words =
          philox({site * 65536 + static_cast<std::uint32_t>(c / 4), word(0), word(1), word(2)}, philox_key(seed));
      return at(x, r, c) - std::log(-std::log(open_uniform(words[static_cast<std::size_t>(c % 4)])));
    });
    return [first](Index) { return first; };
  }
  void accesses(Accesses& to) const { to.all(x, keys); }
};

Chosen chosen(const Call& call) {
  const auto& sizes = call.attributes.sizes;
  return {call.in[0], sizes[0], sizes[1], sizes[2] == 1};
}

int top_k(const Call& call, const Queue& queue) { return run_each(call, queue, TopK{chosen(call)}); }
int top_k_gradient(const Call& call, const Queue& queue) {
  return run_each(call, queue, TopKGradient{chosen(call), call.in[1]});
}
int arg_top_k(const Call& call, const Queue& queue) {
  if (call.out.width == 1) return run_rows(call, queue, Argmax{call.in[0]});
  return run_each(call, queue, ArgTopK{chosen(call)});
}
int sample(const Call& call, const Queue& queue) {
  const auto& sizes = call.attributes.sizes;
  return run_rows(
      call, queue,
      Sample{call.in[0], call.indices[0], static_cast<std::uint64_t>(sizes[0]), static_cast<std::uint32_t>(sizes[1])});
}

}  // namespace

const KernelEntry choices_kernels[] = {
    {"top_k", top_k}, {"top_k_gradient", top_k_gradient}, {"arg_top_k", arg_top_k}, {"sample", sample}, {}};

}  // namespace windrow::cuda
