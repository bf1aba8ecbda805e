// Where the elements of a call that combines or broadcasts lie for MPI: in their tensors, or packed.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "mpi/group.h"

namespace windrow::comm {

bool MpiGroupState::writes(const Call& call) const {
  const bool root = call.peer == rank_;
  return call.kind == CallKind::all_reduce || (call.kind == CallKind::reduce && root) ||
         (call.kind == CallKind::broadcast && !root);
}

PieceSpan MpiGroupState::sources_of(const Exchange& part) {
  const PieceSpan all = part.pieces;
  return part.call.out_of_place ? all.first(1) : all;
}
PieceSpan MpiGroupState::targets_of(const Exchange& part) {
  const PieceSpan all = part.pieces;
  return part.call.out_of_place ? all.last(1) : all;
}

MpiGroupState::Ends MpiGroupState::place(const Begun& call, ByteRange range, std::vector<std::byte>& packed) {
  const Call& what = call.part->call;
  const PieceSpan sources = sources_of(*call.part);
  const bool reads = what.kind != CallKind::broadcast || what.peer == rank_;
  const std::byte* from = what.out_of_place ? within(sources, range) : nullptr;
  std::byte* to = within(targets_of(*call.part), range);
  if (to != nullptr && (from != nullptr || !what.out_of_place)) return {from, to};
  if (!packing_.empty()) {
    packed = std::move(packing_.back());
    packing_.pop_back();
  }
  // The elements to write come first. Out of place, the elements to read follow: MPI wants the same form at all
  // members.
  packed.resize(std::max(packed.size(), (what.out_of_place ? 2 : 1) * range.bytes));
  if (to == nullptr) to = packed.data();
  if (what.out_of_place && from == nullptr) {
    pack(sources, range, packed.data() + range.bytes);
    from = packed.data() + range.bytes;
  } else if (!what.out_of_place && reads) {
    pack(sources, range, to);
  }
  return {from, to};
}

void MpiGroupState::take_back(const Begun& call, ByteRange range, std::vector<std::byte>& packed) {
  constexpr std::size_t most_kept = 8, largest_kept = std::size_t{4} << 20;
  if (packed.empty()) return;
  const PieceSpan targets = targets_of(*call.part);
  if (writes(call.part->call) && within(targets, range) == nullptr) unpack(packed.data(), targets, range);
  if (packing_.size() < most_kept && packed.size() <= largest_kept) packing_.push_back(std::move(packed));
  packed = std::vector<std::byte>();
}

}  // namespace windrow::comm
