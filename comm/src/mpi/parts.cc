// Calls with a priority or with parts: rank 0 decides in which order the parts move.
#include <algorithm>
#include <utility>

#include "mpi/group.h"

namespace windrow::comm {
namespace {

std::size_t parts_of(const Call& call) {
  const std::size_t bytes = call.bytes(), each = call.part_bytes;
  return each == 0 || bytes == 0 ? 1 : bytes / each + (bytes % each == 0 ? 0 : 1);
}

}  // namespace

void MpiGroupState::schedule(std::unique_ptr<Begun> call) {
  const Call& what = call->part->call;
  if (rank_ == 0) {
    queue_.add({what.number, what.priority, what.bytes(), what.part_bytes});
  } else {
    undecided_ += parts_of(what);
  }
  scheduled_.emplace(what.number, std::move(call));
}

/// Makes decisions at rank 0, and receives them at the others. A member that expects another decision has begun to
/// receive it, so no broadcast is left over at the end.
bool MpiGroupState::decide() {
  bool changed = false;
  const auto broadcast = [&](std::int64_t call) {
    telling_.push_back(std::make_unique<Decision>(Decision{.call = call}));
    Decision& last = *telling_.back();
    begin(decisions_, {.kind = CallKind::broadcast, .to = &last.call, .count = 1, .type = MpiType::int64},
          &last.request);
  };
  if (rank_ == 0) {
    while (const auto part = queue_.next()) {
      decided_.push_back(part->call);
      broadcast(static_cast<std::int64_t>(part->call));
      changed = true;
    }
  } else if (telling_.empty() && undecided_ > 0) {
    broadcast(0);
  }
  while (!telling_.empty() && arrived(&telling_.front()->request)) {
    changed = true;
    if (rank_ != 0) {
      decided_.push_back(static_cast<std::uint64_t>(telling_.front()->call));
      --undecided_;
    }
    telling_.pop_front();
  }
  return changed;
}

bool MpiGroupState::begin_parts() {
  bool changed = false;
  while (!decided_.empty()) {
    const auto place = scheduled_.find(decided_.front());
    if (place == scheduled_.end()) break;  // its announcement has not arrived here
    decided_.pop_front();
    Begun& call = *place->second;
    const Call& what = call.part->call;
    const std::size_t left = what.bytes() - call.begun;
    const std::size_t bytes = what.part_bytes == 0 ? left : std::min(left, what.part_bytes);
    ++call.moving;
    parts_moving_.push_back({.call = what.number, .range = {call.begun, bytes}});
    MovingPart& part = parts_moving_.back();
    if (bytes > 0) {
      begin_combining(what, {parts_, this->place(call, part.range, part.packed), bytes / 4}, &part.request);
    }
    call.begun += bytes;
    changed = true;
  }
  return changed;
}

bool MpiGroupState::end_parts() {
  bool changed = false;
  for (auto part = parts_moving_.begin(); part != parts_moving_.end();) {
    if (part->request != nullptr && !arrived(&part->request)) {
      ++part;
      continue;
    }
    changed = true;
    const auto place = scheduled_.find(part->call);
    Begun& call = *place->second;
    data_ended_ = Clock::now();
    if (rank_ == 0) queue_.ended(part->range.bytes);
    take_back(call, part->range, part->packed);
    part = parts_moving_.erase(part);
    if (--call.moving > 0 || call.begun < call.part->call.bytes()) continue;
    const auto ended = std::move(place->second);
    scheduled_.erase(place);
    end_data(*ended);
    ended->part->done();
  }
  return changed;
}

}  // namespace windrow::comm
