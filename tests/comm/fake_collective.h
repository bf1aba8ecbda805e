// For fake_mpi.cc: what collectives compute.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "plugin/mpi_calls.h"

namespace windrow::comm::fake {

using Bytes = std::vector<std::byte>;

inline std::size_t size_of(MpiType type) { return type == MpiType::byte ? 1 : type == MpiType::int64 ? 8 : 4; }

/// A collective at one rank.
struct Part {
  MpiTransfer what;
  Bytes from;
};
struct Collective {
  std::vector<std::optional<Part>> parts;
  int come = 0;
};

template <class T>
void combine(Bytes& to, const std::byte* from, Combine how) {
  for (std::size_t i = 0; i < to.size(); i += sizeof(T)) {
    T a, b;
    std::memcpy(&a, to.data() + i, sizeof a);
    std::memcpy(&b, from + i, sizeof b);
    a = how == Combine::sum ? a + b : b > a || b != b ? b : a;
    std::memcpy(to.data() + i, &a, sizeof a);
  }
}

/// What a rank gets.
inline Bytes result_of(const Collective& all, int rank) {
  const MpiTransfer& own = all.parts[static_cast<std::size_t>(rank)]->what;
  const std::size_t block = own.count * size_of(own.type);
  const auto add = [&](Bytes& to, const std::byte* from) {
    if (own.type == MpiType::float32) return combine<float>(to, from, own.combine);
    if (own.type == MpiType::int32) return combine<std::int32_t>(to, from, own.combine);
    combine<std::int64_t>(to, from, own.combine);
  };
  Bytes result;
  switch (own.kind) {
    case CallKind::broadcast:
      return all.parts[static_cast<std::size_t>(own.peer)]->from;
    case CallKind::all_gather:
    case CallKind::all_to_all:
      for (const auto& part : all.parts) {
        const auto* const begin =
            part->from.data() + (own.kind == CallKind::all_gather ? 0 : block * static_cast<std::size_t>(rank));
        result.insert(result.end(), begin, begin + block);
      }
      return result;
    default: {
      const std::size_t at = own.kind == CallKind::reduce_scatter ? block * static_cast<std::size_t>(rank) : 0;
      result.assign(all.parts[0]->from.data() + at, all.parts[0]->from.data() + at + block);
      for (std::size_t i = 1; i < all.parts.size(); ++i) add(result, all.parts[i]->from.data() + at);
      return result;
    }
  }
}

}  // namespace windrow::comm::fake
