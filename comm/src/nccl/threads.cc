// The threads of a group of NCCL.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "nccl/group.h"

namespace windrow::comm {
namespace {

/// Waits a little, the longer the more often it was called in vain: calls take as long as the slowest member computes,
/// so the core is left to the workers.
void nap(int quiet) {
  if (quiet < 100) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

/// How often a group without calls asks for errors.
constexpr auto idle_period = std::chrono::milliseconds(100);

}  // namespace

void NcclGroupState::serve() {
  try {
    clique_.connect(id_);
    if (settle()) {
      {
        std::lock_guard lock(mutex_);
        connected_ = true;
        changed_.notify_all();
      }
      if (serve_calls()) clique_.close(options_.answer);
    }
  } catch (const std::exception& error) {
    break_up({.why = text_of(error)});
  }
  std::lock_guard lock(mutex_);
  serving_ = false;
  changed_.notify_all();
}

/// Waits until the last call has been issued. Returns false if the group is broken.
bool NcclGroupState::settle() {
  for (int quiet = 0; !clique_.settled(); ++quiet) {
    if (breakage()) return false;
    nap(quiet);
  }
  return !breakage();
}

/// Issues the calls that are ready, and looks whether those that are issued are done. Returns true when the group ends,
/// and false when it is broken.
bool NcclGroupState::serve_calls() {
  std::deque<Rounds::iterator> issued;
  for (int quiet = 0;; ++quiet) {
    std::optional<Rounds::iterator> next;
    {
      std::unique_lock lock(mutex_);
      if (broken_) return false;
      if (ready_.empty() && issued.empty()) {
        if (ending_) return true;
        changed_.wait_for(lock, idle_period, [&] { return !ready_.empty() || broken_ || ending_; });
        if (broken_) return false;
      }
      if (!ready_.empty()) {
        next = ready_.front();
        ready_.pop_front();
      }
    }
    if (next) {
      std::vector<NcclPart>& parts = (*next)->second.parts;
      clique_.issue(parts);
      if (!settle()) return false;
      clique_.end_issue(parts);
      issued.push_back(*next);
      quiet = 0;
    } else {
      clique_.settled();  // throws if there is an error
    }
    if (!issued.empty() && clique_.reached(issued.front()->second.parts)) {
      AllEnded ended;
      {
        std::lock_guard lock(mutex_);
        if (broken_) return false;
        collect(issued.front(), ended);
      }
      issued.pop_front();
      end(ended);
      quiet = 0;
    } else if (!issued.empty()) {
      nap(quiet);
    }
  }
}

/// Tells the other processes of this one's calls, in the order of their numbers, and hears of theirs.
void NcclGroupState::announce() {
  std::unique_lock lock(mutex_);
  Agree agree = std::move(agree_);
  for (Name name{-1, -1, 0}; !broken_; ++name.number) {
    auto place = rounds_.end();
    changed_.wait(lock, [&] {
      place = rounds_.find(name);
      const bool none = place == rounds_.end() && !left_.empty() && gone(name, left_.begin()->first);
      return broken_ || ending_ || none || (place != rounds_.end() && place->second.step == Round::Step::announcing);
    });
    if (broken_ || place == rounds_.end() || place->second.step != Round::Step::announcing) break;
    const Said own = said(place->second).front();
    lock.unlock();
    AllEnded ended;
    try {
      Breakage why = ask_others(own, agree);
      lock.lock();
      if (broken_) break;
      decide(place, std::move(why), ended);
      lock.unlock();
    } catch (const AbortError& error) {
      break_up({.why = text_of(error), .reported_by = ReportedBy::aborter});
    } catch (const PeerError& error) {
      break_up({.why = text_of(error), .reported_by = ReportedBy::another});
    } catch (const std::exception& error) {
      break_up({.why = text_of(error)});
    }
    end(ended);
    lock.lock();
  }
  // Others are to hear why the group is broken, and not that this member has left.
  changed_.wait(lock, [&] { return !broken_ || failed_all_ || !watching_; });
  lock.unlock();
  agree = nullptr;  // tells the others that no call will follow
  lock.lock();
  announcing_ = false;
  changed_.notify_all();
}

/// Why the call fails in all processes; empty if it does not.
Breakage NcclGroupState::ask_others(const Said& own, const Agree& agree) {
  Call call = *own.call;
  std::vector<Index> what = {static_cast<Index>(call.kind), static_cast<Index>(call.elements),
                             static_cast<Index>(call.combine), call.peer};
  for (const Call::Shape& shape : call.shapes) what.insert(what.end(), {shape.rows, shape.width});
  const bool failed = !own.failure->empty();
  const Numbers all =
      agree({fingerprint({reinterpret_cast<const char*>(what.data()), what.size() * sizeof(Index)}), failed ? 1 : 0});
  std::size_t other = 0;
  bool differ = false, any_failed = false;
  for (std::size_t rank = 0; 2 * rank < all.size(); ++rank) {
    if (!differ && all[2 * rank] != all[0]) {
      differ = true;
      other = rank;
    }
    if (!differ && !any_failed && all[2 * rank + 1] != 0) {
      any_failed = true;
      other = rank;
    }
  }
  if (!differ && !any_failed) return {};
  // All processes have seen the same numbers, so all ask for texts.
  constexpr std::size_t words = 64;
  Numbers text(words);
  const std::string own_text = differ ? own.call->describe() : *own.failure;
  std::memcpy(text.data(), own_text.data(), std::min(own_text.size(), 8 * words - 1));
  const Numbers texts = agree(text);
  const auto said_by = [](const Numbers& all_texts, std::size_t rank) {
    return std::string(reinterpret_cast<const char*>(all_texts.data() + rank * words));
  };
  const std::string of_other = said_by(texts, other);
  if (differ) {
    return {.why = "rank 0 calls " + said_by(texts, 0) + ", but rank " + std::to_string(other) + " calls " + of_other};
  }
  // The operand here may have failed as well, for the same reason or another.
  std::exception_ptr cause = of_other == last_failed_.first ? last_failed_.second : nullptr;
  if (own.origin && of_other == said_by(text, 0)) cause = own.origin;
  Breakage failure = operand_failed(static_cast<int>(other), of_other, cause);
  last_failed_ = {of_other, failure.cause};
  return failure;
}

/// When the oldest call began that is not done; and what to say if it takes too long.
std::optional<NcclGroupState::Clock::time_point> NcclGroupState::oldest(std::string* what) const {
  const std::string limit = seconds(options_.patience);
  if (!connected_) {
    *what = "NCCL has not connected the members within " + limit;
    return started_;
  }
  const Round* found = nullptr;
  for (const auto& [name, round] : rounds_) {
    if (round.step != Round::Step::done && (found == nullptr || round.since < found->since)) found = &round;
  }
  if (found == nullptr) return {};
  std::string missing, called;
  for (std::size_t i = 0; i < found->ranks.size(); ++i) {
    if (found->slots[i].begun) {
      called = found->slots[i].begun->call.describe_for_others(found->ranks[i]);
    } else {
      missing += (missing.empty() ? "" : ", ") + std::to_string(found->ranks[i]);
    }
  }
  if (found->step == Round::Step::gathering) {
    *what = "rank " + missing + " has not called " + called + ", or its tensors are not ready, within " + limit +
            " after the first member";
  } else if (found->step == Round::Step::announcing) {
    *what = "other processes have not called " + called + " within " + limit;
  } else {
    *what = called + " was not done within " + limit;
  }
  *what += "; the group is broken";
  return found->since;
}

void NcclGroupState::watch() {
  std::unique_lock lock(mutex_);
  while (!(ending_ && !serving_)) {
    if (broken_ && !failed_all_) {
      end_broken(lock);
      continue;
    }
    std::string what;
    const auto since = broken_ ? std::nullopt : oldest(&what);
    if (!since) {
      changed_.wait(lock);
    } else if (const auto left = time_left(options_.patience, *since); left > left.zero()) {
      changed_.wait_for(lock, left);
    } else {
      broken_ = {.why = what};
    }
  }
  if (broken_ && !failed_all_) end_broken(lock);
  watching_ = false;
  changed_.notify_all();
}

/// Has NCCL abort, since it may write the tensors; then all parts fail.
void NcclGroupState::end_broken(std::unique_lock<std::mutex>& lock) {
  changed_.notify_all();
  // A thread that is in a call of NCCL for longer than this is stuck there: the abort may free it.
  changed_.wait_for(lock, options_.answer / 2, [&] { return !serving_; });
  std::thread([self = shared_from_this()] {
    self->clique_.abort();
    std::lock_guard held(self->mutex_);
    self->aborted_ = true;
    self->changed_.notify_all();
  }).detach();
  if (!changed_.wait_for(lock, options_.answer, [&] { return aborted_; })) {
    broken_.why += "; NCCL did not abort within " + seconds(options_.answer) +
                   ", so devices may still write tensors: end the program";
  }
  const Breakage why = broken_;
  lock.unlock();
  if (on_break_) on_break_(why);  // first: who sees a part fail may rely on it
  lock.lock();
  failed_all_ = true;
  changed_.notify_all();
  std::vector<ExchangePtr> parts;
  for (auto& [name, round] : rounds_) {
    for (Slot& slot : round.slots) {
      if (!slot.part || slot.ended) continue;
      slot.ended = true;
      parts.push_back(std::move(slot.part));
    }
  }
  lock.unlock();
  for (const ExchangePtr& part : parts) part->fail(why);
  parts.clear();
  lock.lock();
}

}  // namespace windrow::comm
