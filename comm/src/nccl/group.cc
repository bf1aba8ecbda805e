#include "nccl/group.h"

#include <algorithm>
#include <utility>

namespace windrow::comm {

struct NcclGroupState::Announcement final : Exchange {
  std::shared_ptr<NcclGroupState> group;

  void done(std::exception_ptr) override { group->announced(call.number, {}); }
  void fail(const Breakage& why) override { group->announced(call.number, why); }
};

NcclGroupState::NcclGroupState(const NcclCalls& calls, Setup setup)
    // Waits add the time to the present one.
    : options_{.patience = setup.options.patience,
               .answer = std::min<std::chrono::nanoseconds>(setup.options.answer, std::chrono::hours(1))},
      size_(setup.size),
      id_(setup.id),
      clique_(calls, setup.places, setup.size),
      announcements_(std::move(setup.announcements)),
      all_here_(announcements_ == nullptr) {}

void NcclGroupState::start(std::function<void(const Breakage&)> on_break) {
  on_break_ = std::move(on_break);
  serving_ = watching_ = true;
  serve_ = std::thread([self = shared_from_this()] { self->serve(); });
  watch_ = std::thread([self = shared_from_this()] { self->watch(); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return connected_ || failed_all_; });
  if (broken_) std::rethrow_exception(broken_.error("NcclGroup"));
}

void NcclGroupState::stop() {
  std::unique_lock lock(mutex_);
  ending_ = true;
  changed_.notify_all();
  // The group may end in an op's completion, on one of its own threads.
  const auto me = std::this_thread::get_id();
  const bool own = me == serve_.get_id() || me == watch_.get_id();
  const auto end_thread = [&](std::thread& thread, const bool& runs, std::chrono::nanoseconds limit) {
    if (!thread.joinable()) return;
    const bool ended = !own && changed_.wait_for(lock, limit, [&] { return !runs; });
    lock.unlock();
    if (ended) {
      thread.join();
    } else {
      thread.detach();
    }
    lock.lock();
  };
  end_thread(serve_, serving_, 3 * options_.answer);
  end_thread(watch_, watching_, 3 * options_.answer);
}

Breakage NcclGroupState::breakage() const {
  std::lock_guard lock(mutex_);
  return broken_;
}

void NcclGroupState::break_up(const Breakage& why) {
  std::lock_guard lock(mutex_);
  if (!broken_) broken_ = why;
  changed_.notify_all();
}

NcclGroupState::Name NcclGroupState::name_of(const Call& call, int rank) {
  if (call.kind == Kind::send) return {rank, call.peer, call.number};
  if (call.kind == Kind::recv) return {call.peer, rank, call.number};
  return {-1, -1, call.number};
}

NcclGroupState::Rounds::iterator NcclGroupState::round_of(const Call& call, int rank) {
  const Name name = name_of(call, rank);
  const auto [place, first] = rounds_.try_emplace(name);
  if (first) {
    if (!all_here_) {
      place->second.ranks = {rank};
    } else if (name.from >= 0) {
      place->second.ranks = {name.from, name.to};
    } else {
      for (int each = 0; each < size_; ++each) place->second.ranks.push_back(each);
    }
    place->second.slots.resize(place->second.ranks.size());
    changed_.notify_all();  // the watch has something to look at
  }
  return place;
}

std::vector<Said> NcclGroupState::said(const Round& round) const {
  std::vector<Said> all;
  for (std::size_t i = 0; i < round.ranks.size(); ++i) {
    all.push_back({round.ranks[i], &round.slots[i].begun->call, &round.slots[i].failure, round.slots[i].origin});
  }
  return all;
}

void NcclGroupState::begin(int rank, Call call, Operands operands, void* stream) {
  NcclPart part{.rank = rank, .call = std::move(call), .pieces = std::move(operands.pieces)};
  if (operands.failure.empty()) operands.failure = clique_.mark(stream, &part.after);
  Failed failed{std::move(operands.failure), std::move(operands.origin)};
  AllEnded ended;
  {
    std::lock_guard lock(mutex_);
    if (broken_) return;  // take() fails
    const auto round = round_of(part.call, rank);
    put(round, rank, std::move(part), std::move(failed), ended);
    fail_hopeless(ended);
  }
  end(ended);
}

/// A member takes part in a call. The last one of this process decides what becomes of the call.
void NcclGroupState::put(Rounds::iterator place, int rank, NcclPart part, Failed failed, AllEnded& ended) {
  Round& round = place->second;
  const auto i = static_cast<std::size_t>(std::ranges::find(round.ranks, rank) - round.ranks.begin());
  round.slots[i].begun = std::move(part);
  round.slots[i].failure = std::move(failed.failure);
  round.slots[i].origin = std::move(failed.origin);
  if (round.step != Round::Step::gathering) return;
  if (!std::ranges::all_of(round.slots, [](const Slot& slot) { return slot.begun.has_value(); })) return;
  if (all_here_) return decide(place, reason_to_fail(said(round)), ended);
  round.step = Round::Step::announcing;
  announce_next(ended);
}

/// Announces the next call, unless one is announced: all processes issue calls in the order of their numbers.
void NcclGroupState::announce_next(AllEnded& ended) {
  const auto next = rounds_.find({-1, -1, next_announced_});
  if (announcing_ || next == rounds_.end() || next->second.step != Round::Step::announcing) return;
  announcing_ = true;
  const Slot& own = next->second.slots.front();
  auto announcement = std::make_unique<Announcement>();
  announcement->group = shared_from_this();
  announcement->call = own.begun->call;
  announcement->failure = own.failure;
  announcement->origin = own.origin;
  ended.announced.push_back(std::move(announcement));
}

/// All processes make the call that was announced; or why it fails in all of them.
void NcclGroupState::announced(std::uint64_t number, const Breakage& why) {
  AllEnded ended;
  {
    std::lock_guard lock(mutex_);
    if (broken_) return;
    decide(rounds_.find({-1, -1, number}), why, ended);
    announcing_ = false;
    ++next_announced_;
    announce_next(ended);
  }
  end(ended);
}

/// The call fails if there is a reason.
void NcclGroupState::decide(Rounds::iterator place, Breakage why, AllEnded& ended) {
  Round& round = place->second;
  round.why = std::move(why);
  if (round.why) return collect(place, ended);
  round.step = Round::Step::moving;
  for (Slot& slot : round.slots) round.parts.push_back(*slot.begun);
  ready_.push_back(place);
  changed_.notify_all();
}

/// The round is done: takes out the parts that have come. The last of them ends the round.
void NcclGroupState::collect(Rounds::iterator place, AllEnded& ended) {
  Round& round = place->second;
  round.step = Round::Step::done;
  for (Slot& slot : round.slots) {
    if (!slot.part || slot.ended) continue;
    slot.ended = true;
    Breakage why = round.why;
    if (!why && !slot.part->failure.empty()) {
      why = {.why = slot.part->failure};
      if (slot.part->origin) why.cause = slot.part->origin;
    }
    ended.push_back({std::move(slot.part), std::move(why)});
  }
  if (!std::ranges::all_of(round.slots, &Slot::ended)) return;
  for (Slot& slot : round.slots) {
    if (slot.begun && round.parts.empty()) clique_.give_back(slot.begun->rank, slot.begun->after);
  }
  rounds_.erase(place);
}

void NcclGroupState::end(AllEnded& ended) {
  for (ExchangePtr& part : ended.announced) announcements_->take(std::move(part));
  for (auto& [part, why] : ended) {
    if (why) {
      part->fail(why);
    } else {
      part->done();
    }
  }
}

void NcclGroupState::take(int rank, ExchangePtr part) {
  AllEnded ended;
  {
    std::unique_lock lock(mutex_);
    if (failed_all_) {
      const Breakage why = broken_;
      lock.unlock();
      return part->fail(why);
    }
    const auto place = round_of(part->call, rank);
    Round& round = place->second;
    const auto i = static_cast<std::size_t>(std::ranges::find(round.ranks, rank) - round.ranks.begin());
    const bool begun = round.slots[i].begun.has_value();
    const Call call = part->call;
    Failed failed{part->failure.empty() ? "its op has not run" : part->failure, part->origin};
    round.slots[i].part = std::move(part);
    if (round.step == Round::Step::done) {
      collect(place, ended);
    } else if (!begun && !broken_) {
      put(place, rank, {.rank = rank, .call = call, .pieces = {}}, std::move(failed), ended);
    }
    fail_hopeless(ended);
  }
  end(ended);
}

void NcclGroupState::leave(int rank, const Member::Numbered& numbered) {
  AllEnded ended;
  {
    std::lock_guard lock(mutex_);
    left_[rank] = numbered;
    fail_hopeless(ended);
    changed_.notify_all();
  }
  end(ended);
}

/// Whether the member has left, and will never make this call.
bool NcclGroupState::gone(const Name& name, int rank) const {
  const auto left = left_.find(rank);
  if (left == left_.end()) return false;
  const auto kind = name.from < 0 ? Kind::all_reduce : rank == name.from ? Kind::send : Kind::recv;
  const int peer = name.from < 0 ? 0 : rank == name.from ? name.to : name.from;
  return left->second.of(kind, peer) <= name.number;
}

void NcclGroupState::fail_hopeless(AllEnded& ended) {
  if (left_.empty() || !all_here_) return;
  for (auto next = rounds_.begin(); next != rounds_.end();) {
    const auto place = next++;
    Round& round = place->second;
    if (round.step != Round::Step::gathering) continue;
    for (std::size_t i = 0; i < round.ranks.size(); ++i) {
      if (round.slots[i].begun || !gone(place->first, round.ranks[i])) continue;
      for (std::size_t k = 0; k < round.ranks.size(); ++k) round.slots[k].ended |= gone(place->first, round.ranks[k]);
      decide(place, {.why = "rank " + std::to_string(round.ranks[i]) + " has ended without this call"}, ended);
      break;
    }
  }
}

}  // namespace windrow::comm
