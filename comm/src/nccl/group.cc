#include "nccl/group.h"

#include <algorithm>
#include <utility>

namespace windrow::comm {

/// Announces a call to the other members: moves no data, and ends when all members make the same call.
struct NcclGroupState::Announcement final : Exchange {
  std::shared_ptr<NcclGroupState> group;
  int rank = 0;

  void done(std::exception_ptr) override { group->announced(*this, {}); }
  void fail(const Breakage& why) override { group->announced(*this, why); }
};

NcclGroupState::NcclGroupState(const NcclCalls& calls, Setup setup)
    // Waits add the time to the present one.
    : options_{.patience = setup.options.patience,
               .answer = std::min<std::chrono::nanoseconds>(setup.options.answer, std::chrono::hours(1))},
      id_(setup.id),
      clique_(calls, setup.places, setup.size),
      announcements_(std::move(setup.announcements)),
      all_here_(static_cast<int>(announcements_.size()) == setup.size) {}

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

void NcclGroupState::begin(int rank, Call call, Operands operands, void* stream) {
  NcclPart part{.rank = rank, .call = call, .pieces = std::move(operands.pieces)};
  if (operands.failure.empty()) operands.failure = clique_.mark(stream, &part.after);
  {
    std::lock_guard lock(mutex_);
    if (broken_) return;  // take() fails
    rounds_[name_of(call, rank)].slots[rank].begun = std::move(part);
  }
  announce(rank, std::move(call), std::move(operands.failure), std::move(operands.origin));
}

void NcclGroupState::announce(int rank, Call call, std::string failure, std::exception_ptr origin) {
  auto made = std::make_unique<Announcement>();
  made->group = shared_from_this();
  made->rank = rank;
  made->call = std::move(call);
  made->failure = std::move(failure);
  made->origin = std::move(origin);
  announcements_.at(rank)->take(std::move(made));
}

/// All members make the call that was announced; or why it fails.
void NcclGroupState::announced(const Announcement& call, const Breakage& why) {
  AllEnded ended;
  {
    std::lock_guard lock(mutex_);
    if (broken_) return;
    const auto place = rounds_.find(name_of(call.call, call.rank));
    place->second.slots[call.rank].answer = why;
    if (all_here_) {
      decide(place, ended);
    } else {  // all processes issue calls in the order of their numbers
      const auto next = [this] { return rounds_.find({-1, -1, next_issued_}); };
      for (auto one = next(); one != rounds_.end() && one->second.slots.begin()->second.answer; one = next()) {
        ++next_issued_;
        decide(one, ended);
      }
    }
  }
  end(ended);
}

/// Issues the call if all members of this process have been told that all make it.
void NcclGroupState::decide(Rounds::iterator place, AllEnded& ended) {
  auto& [name, round] = *place;
  const auto agrees = [](const auto& slot) { return slot.second.answer && !*slot.second.answer; };
  const std::size_t all = name.from >= 0 ? 2 : announcements_.size();
  if (static_cast<std::size_t>(std::ranges::count_if(round.slots, agrees)) < all) return collect(place, ended);
  round.since = Clock::now();
  for (const auto& [rank, slot] : round.slots) round.parts.push_back(*slot.begun);
  ready_.push_back(place);
  changed_.notify_all();
}

/// Takes out the parts of a call that is done, or that has failed at their members.
void NcclGroupState::collect(Rounds::iterator place, AllEnded& ended) {
  Round& round = place->second;
  for (auto next = round.slots.begin(); next != round.slots.end();) {
    const auto one = next++;
    Slot& slot = one->second;
    if (!slot.part || !slot.answer || !(round.done || *slot.answer)) continue;
    Breakage why = *slot.answer;
    if (!why && !slot.part->failure.empty()) {
      why = {.why = slot.part->failure};
      if (slot.part->origin) why.cause = slot.part->origin;
    }
    if (round.parts.empty()) clique_.give_back(one->first, slot.begun->after);
    ended.push_back({std::move(slot.part), std::move(why)});
    round.slots.erase(one);
  }
  if (round.slots.empty()) rounds_.erase(place);
}

void NcclGroupState::end(AllEnded& ended) {
  for (auto& [part, why] : ended) {
    if (why) {
      part->fail(why);
    } else {
      part->done();
    }
  }
}

void NcclGroupState::take(int rank, ExchangePtr part) {
  const Call call = part->call;
  std::string failure = part->failure.empty() ? "its op has not run" : part->failure;
  std::exception_ptr origin = part->origin;
  AllEnded ended;
  {
    std::unique_lock lock(mutex_);
    if (failed_all_) {
      const Breakage why = broken_;
      lock.unlock();
      return part->fail(why);
    }
    const auto place = rounds_.try_emplace(name_of(call, rank)).first;
    Slot& slot = place->second.slots[rank];
    slot.part = std::move(part);
    if (slot.begun || broken_) {
      collect(place, ended);
      lock.unlock();
      return end(ended);
    }
    slot.begun = {.rank = rank, .call = call};
  }
  announce(rank, call, std::move(failure), std::move(origin));
}

}  // namespace windrow::comm
