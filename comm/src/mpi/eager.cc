// Calls whose data travel with their announcements.
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

/// The tensors of a call one behind the other, in a member's part of an announcement.
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

bool MpiGroupState::is_eager(const Call& call) const {
  return eager_bytes_ > 0 && call.kind < Kind::all_gather && call.bytes() <= eager_bytes_;
}

std::size_t MpiGroupState::part_words() const { return header + eager_bytes_ / sizeof(std::int64_t); }

void MpiGroupState::keep_memory_of(Begun& call) {
  if (call.gathered) spare_.push_back(std::move(call.gathered));
}

/// Without eager calls, an announcement is a maximum: of the hash, of its complement, and of the ranks that failed.
void MpiGroupState::announce(Begun& call) {
  if (eager_bytes_ == 0) {
    return require(calls_.all_reduce(announcements_, nullptr, call.announced.data(), call.announced.size(),
                                     MpiType::int64, MpiOperation::max, &call.request));
  }
  const Call& what = call.part->call;
  if (spare_.empty()) {
    call.gathered =
        std::make_unique_for_overwrite<std::int64_t[]>((1 + static_cast<std::size_t>(size_)) * part_words());
  } else {
    call.gathered = std::move(spare_.back());
    spare_.pop_back();
  }
  std::int64_t* const own = call.gathered.get();
  own[0] = call.announced[0];
  own[1] = call.announced[2];
  const bool gives = what.kind != Kind::broadcast || what.peer == rank_;
  if (is_eager(what) && gives && call.part->failure.empty()) {
    const std::vector<Piece> to = placed(what, own);
    for (std::size_t i = 0; i < to.size(); ++i) copy(call.part->pieces[i], to[i]);
  }
  require(calls_.all_gather(announcements_, own, own + part_words(), part_words(), MpiType::int64, &call.request));
}

bool MpiGroupState::agreed(const Begun& call) const {
  if (eager_bytes_ == 0) return call.announced[0] == -1 - call.announced[1] && call.announced[2] == 0;
  const std::int64_t* const own = call.gathered.get();
  for (std::size_t i = 1; i <= static_cast<std::size_t>(size_); ++i) {
    const std::int64_t* const part = own + i * part_words();
    if (part[0] != own[0] || part[1] != 0) return false;
  }
  return true;
}

/// All members add up in the order of ranks, so they get equal bits.
void MpiGroupState::end_eager(Begun& call) const {
  const Call& what = call.part->call;
  std::vector<std::vector<Piece>> of_ranks;
  for (std::size_t i = 1; i <= static_cast<std::size_t>(size_); ++i) {
    of_ranks.push_back(placed(what, call.gathered.get() + i * part_words()));
  }
  const bool root = what.peer == rank_;
  for (std::size_t i = 0; i < call.part->pieces.size(); ++i) {
    const Piece& to = call.part->pieces[i];
    if (what.kind == Kind::broadcast) {
      if (!root) copy(of_ranks[static_cast<std::size_t>(what.peer)][i], to);
    } else if (what.kind == Kind::all_reduce || root) {
      std::vector<Piece> from;
      for (const std::vector<Piece>& of_rank : of_ranks) from.push_back(of_rank[i]);
      combine(what.combine, what.elements, from, std::span(&to, 1));
    }
  }
}

}  // namespace windrow::comm
