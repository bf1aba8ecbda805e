// Announcements of calls, and data that travel with them.
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "combine.h"
#include "mpi/group.h"

namespace windrow::comm {
namespace {

/// Numbers before the data: what is called, and whether an operand has failed.
constexpr std::size_t header = 2;

/// The places of a call's tensors, one after the other, in a member's part of an announcement.
std::vector<Piece> placed(const Call& call, std::int64_t* announcement) {
  auto* next = reinterpret_cast<std::byte*>(announcement + header);
  std::vector<Piece> pieces;
  for (const auto [rows, width] : call.shapes) {
    pieces.push_back({next, rows, width, 4 * width});
    next += 4 * rows * width;
  }
  return pieces;
}

}  // namespace

std::size_t MpiGroupState::eager_bytes(const MpiOptions& options, int members) {
  constexpr std::size_t most_of_all = 8 << 10;  // with more, a second collective takes less time
  const std::size_t each = options.eager_bytes / sizeof(std::int64_t) * sizeof(std::int64_t);
  return each <= most_of_all / static_cast<std::size_t>(members) ? each : 0;
}

bool MpiGroupState::Series::is_eager(const Call& call) const {
  const bool may = call.kind < CallKind::all_gather || call.kind == CallKind::exchange;
  return eager_bytes > 0 && may && call.bytes() <= eager_bytes;
}

std::size_t MpiGroupState::Series::part_words() const { return header + eager_bytes / sizeof(std::int64_t); }

void MpiGroupState::announce(Series& series, Begun& call, std::int64_t hash) {
  const Call& what = call.part->call;
  call.gathered =
      std::make_unique_for_overwrite<std::int64_t[]>((1 + static_cast<std::size_t>(size_)) * series.part_words());
  std::int64_t* const own = call.gathered.get();
  own[0] = hash;
  own[1] = call.part->failure.empty() ? 0 : 1;
  const bool gives = what.kind != CallKind::broadcast || what.peer == rank_;
  if (series.is_eager(what) && gives && !call.part->pieces.empty()) {
    const std::vector<Piece> to = placed(what, own);
    for (std::size_t i = 0; i < to.size(); ++i) copy(call.part->pieces[i], to[i]);
  }
  begin(series.announcements,
        {.kind = CallKind::all_gather,
         .from = own,
         .to = own + series.part_words(),
         .count = series.part_words(),
         .type = MpiType::int64},
        &call.request);
}

bool MpiGroupState::agreed(const Series& series, const Begun& call) const {
  const std::int64_t* const own = call.gathered.get();
  for (std::size_t i = 1; i <= static_cast<std::size_t>(size_); ++i) {
    const std::int64_t* const part = own + i * series.part_words();
    if (part[0] != own[0] || part[1] != 0) return false;
  }
  return true;
}

/// All members add up in the order of ranks, so they get equal bits.
void MpiGroupState::end_eager(const Series& series, Begun& call) const {
  const Call& what = call.part->call;
  std::vector<std::vector<Piece>> of_ranks;
  for (std::size_t i = 1; i <= static_cast<std::size_t>(size_); ++i) {
    of_ranks.push_back(placed(what, call.gathered.get() + i * series.part_words()));
  }
  if (what.kind == CallKind::exchange) {
    for (std::size_t r = 0; r < of_ranks.size(); ++r) {
      const auto row = static_cast<Index>(r);
      copy(of_ranks[r].front(), rows(call.part->pieces[1], row, row + 1));
    }
    return;
  }
  const bool root = what.peer == rank_;
  const PieceSpan targets = targets_of(*call.part);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Piece& to = targets[i];
    if (what.kind == CallKind::broadcast) {
      if (!root) copy(of_ranks[static_cast<std::size_t>(what.peer)][i], to);
    } else if (what.kind == CallKind::all_reduce || root) {
      std::vector<Piece> from;
      for (const std::vector<Piece>& of_rank : of_ranks) from.push_back(of_rank[i]);
      combine(what.combine, what.elements, from, std::span(&to, 1));
    }
  }
}

}  // namespace windrow::comm
