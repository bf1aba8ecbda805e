// The threads of a group of NCCL.
#include <algorithm>
#include <utility>

#include "nccl/group.h"

namespace windrow::comm {
namespace {

/// Waits a little, and longer each time that it is called in vain: a call takes as long as the slowest member computes,
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
        issued.front()->second.done = true;
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

/// Since when the oldest unfinished call has been moving data; sets `what` to the text for an error if it takes too
/// long.
std::optional<NcclGroupState::Clock::time_point> NcclGroupState::oldest(std::string* what) const {
  const std::string limit = seconds(options_.patience);
  if (!connected_) {
    *what = "NCCL has not connected the members within " + limit;
    return started_;
  }
  const Round* found = nullptr;
  for (const auto& [name, round] : rounds_) {
    const bool moves = !round.parts.empty() && !round.done;
    if (moves && (found == nullptr || round.since < found->since)) found = &round;
  }
  if (found == nullptr) return {};
  *what = found->parts.front().call.describe() + " was not done within " + limit + "; the group is broken";
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

/// Makes NCCL abort, because it may still write the tensors; then fails all parts.
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
  if (on_break_) on_break_(why);  // first, because the user of a failed part may rely on it
  lock.lock();
  failed_all_ = true;
  changed_.notify_all();
  std::vector<ExchangePtr> parts;
  for (auto& [name, round] : rounds_) {
    for (auto& [rank, slot] : round.slots) {
      if (slot.part) parts.push_back(std::move(slot.part));
    }
  }
  lock.unlock();
  for (const ExchangePtr& part : parts) part->fail(why);
  parts.clear();
  lock.lock();
}

}  // namespace windrow::comm
