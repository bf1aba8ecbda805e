// What waits inside ops ask of the worker pool.
#include <limits>

#include "core/asymmetric_fence.h"
#include "policy/worker_pool.h"

namespace windrow {

void WorkerPool::block() {
  MutexLock lock(mutex_);
  ++blocked_;
  awake_.fetch_sub(1, std::memory_order_seq_cst);
  if (threads() == blocked_ && !spawn()) {
    --blocked_;
    ++awake_;
    throw Error("a wait inside an op would leave policy pool without a thread: " + std::to_string(threads()) +
                " wait already, max_spare_threads = " + std::to_string(max_spares_));
  }
  lock.unlock();
  AsymmetricFence::heavy();  // see rouse()
  if (worth_waking()) rouse();
}

void WorkerPool::let_others_in() {
  const auto until = std::chrono::steady_clock::now() + longest_courtesy;
  const auto slot_is_free = [&] { return awake_.load() - searching_.load() < most_awake_; };
  while (slot_is_free() && work_in_sight() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
}

void WorkerPool::unblock(Patience) { unblock_other(); }

void WorkerPool::unblock_other() {
  MutexLock lock(mutex_);
  --blocked_;
  ++awake_;
}

OpRecord* WorkerPool::take_wanted(const Wanted& wanted) {
  if (urgent_count_.load(std::memory_order_relaxed) > 0) return nullptr;
  ReadyRing& ring = current_.worker->port->ready;
  if (ring.empty<ReadyRing::Look::close>()) return nullptr;
  OpRecord* const op = ring.take_newest(wanted, most_looks);
  rouse();  // who looked meanwhile found nothing
  return op;
}

OpRecord* WorkerPool::take_wanted_anywhere(const Wanted& wanted) {
  // One thread at a time, since while one looks the others find nothing.
  MutexLock lock(search_mutex_);
  ReadyRing& mine = current_.worker->port->ready;
  // All that is ready comes to this thread's ring, where it can be looked at.
  for (Port* port = ports_.first(); port != nullptr; port = port->next) {
    if (&port->ready == &mine) continue;
    // Not for ever, though its owner may put as fast as this takes.
    for (std::uint64_t left = port->ready.size(); left > 0; --left) {
      OpRecord* const op = port->ready.take_some<ReadyRing::Look::close>(mine);
      if (op == nullptr) break;
      if (!mine.put(*op)) put_urgent(*op);
    }
  }
  OpRecord* op = mine.take_newest(wanted, std::numeric_limits<std::uint64_t>::max());
  if (op == nullptr) op = take_wanted_by_priority(wanted);
  rouse();
  return op;
}

OpRecord* WorkerPool::take_wanted_by_priority(const Wanted& wanted) {
  MutexLock lock(priority_mutex_);
  if (OpRecord* const op = urgent_.take_wanted(wanted, ReadyQueue::Search::all)) {
    --urgent_count_;
    return op;
  }
  OpRecord* const op = background_.take_wanted(wanted, ReadyQueue::Search::all);
  if (op != nullptr) --background_count_;
  return op;
}

bool WorkerPool::lacks_threads() const {
  MutexLock lock(mutex_);
  return asleep_ <= wakes_ && threads() >= most_awake_ + few_spares;
}

}  // namespace windrow
