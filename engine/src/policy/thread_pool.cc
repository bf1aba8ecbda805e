#include "policy/thread_pool.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "record/asymmetric_fence.h"

namespace windrow {

ThreadPool::ThreadPool(const RunningPolicy& policy, const PolicyContext& of, ThreadPoolOptions how)
    : Slots(how.helps != nullptr || of.options.policy == Policy::chaos ? GoesOn::with_none
            : how.lane != nullptr                                      ? GoesOn::with_ops_of_lane
                                                                       : GoesOn::with_any,
            how.lane),
      policy_(policy),
      of_(of),
      name_(std::move(how.name)),
      helps_(how.helps),
      loops_(how.threads) {
  counts_.most_awake = how.threads;
  if (helps_ != nullptr) helps_->helper_ = this;
  MutexLock lock(mutex_);
  searched_ = &new_ring();
}

void ThreadPool::start() {
  MutexLock lock(mutex_);
  if (stopping_ || threads() > 0) return;
  if (!spawn()) throw Error("cannot start a thread for " + name_);
}

// ---- where ready ops are ----

[[gnu::always_inline]] inline void ThreadPool::add(OpRecord& op) noexcept {
  const bool has_priority = op.priority != 0;
  Port* const port = has_priority ? nullptr : of_.ports.mine_if_any();
  if (port == nullptr || (!owns(port->ring) && !make_ring(*port)) || !port->ring->put(op)) [[unlikely]] {
    add_by_queue(op, has_priority);
  } else if (port->ring->is_due()) {
    port->ring->hand_over();
  }
  rouse();
}

void ThreadPool::add_by_queue(OpRecord& op, bool has_priority) noexcept {
  if (!has_priority && from_others_.put(op)) return;
  ThreadPool* const helper = op.priority > 0 ? helper_.load(std::memory_order_relaxed) : nullptr;
  by_priority_.put(op);  // the op may be gone now
  if (helper != nullptr) helper->rouse();
}

[[gnu::always_inline]] inline OpRecord* ThreadPool::next(Worker& worker) {
  if (helps_ != nullptr) return look_around<ReadyRing::Look::plain>(worker);
  return by_priority_.take(worker.takes, [&](bool turned) {
    if (turned) return take_from_rings<ReadyRing::Look::close>(worker);
    if (OpRecord* const op = worker.ring->take()) return op;
    return take_from_rings<ReadyRing::Look::plain>(worker);
  });
}

template <ReadyRing::Look look>
OpRecord* ThreadPool::look_around(Worker& worker) {
  ByPriority& by_priority = helps_ != nullptr ? helps_->by_priority_ : by_priority_;
  if (by_priority.any_urgent()) {
    if (OpRecord* const op = by_priority.take_urgent()) return op;
  }
  if (helps_ != nullptr) return nullptr;
  return by_priority.take_turned(worker.takes, [&](bool) { return take_from_rings<look>(worker); });
}

template <ReadyRing::Look look>
[[gnu::noinline]] OpRecord* ThreadPool::take_from_rings(Worker& worker) {
  // A plain look starts with the ring that last had ops. A close look starts with the ring behind the last one, since a
  // ring may never become empty; it includes the thread's own ring, where ops stay while urgent ops run.
  if (look == ReadyRing::Look::close && ++worker.close_looks % 2 == 0) {
    if (OpRecord* const op = from_others_.take()) return op;  // sometimes first, since rings may never become empty
  }
  PoolRing*& last = look == ReadyRing::Look::plain ? worker.from : worker.from_closely;
  PoolRing* const begin = look == ReadyRing::Look::plain ? last : behind(last);
  PoolRing* ring = begin;
  do {
    if (ring == worker.ring) {
      if (look == ReadyRing::Look::close) {
        if (OpRecord* const op = ring->take()) {
          last = ring;
          return op;
        }
      }
    } else if (!ring->empty<look>()) {
      OpRecord* const op = ring->take_some<look>(*worker.ring);
      rouse();  // a thread that looked meanwhile may have missed the ops that moved
      if (op != nullptr) {
        worker.from = last = ring;
        return op;
      }
    }
    ring = behind(ring);
  } while (ring != begin);
  if (OpRecord* const op = from_others_.take()) return op;
  return worker.ring->take();
}

OpRecord* ThreadPool::take_wanted(const Wanted& wanted) {
  if (of_.options.policy == Policy::chaos) {
    // While spare threads can still be added, keep the order: they can run ops that the wait does not depend on.
    const bool few_wait = spares() < std::min(few_spares, of_.options.max_spare_threads);
    return by_priority_.take_wanted(wanted, few_wait ? PriorityQueue::Search::near : PriorityQueue::Search::all);
  }
  PoolRing* const ring = of_.ports.mine().ring;
  if (!owns(ring) || helps_ != nullptr || counts_.urgent.load(std::memory_order_relaxed) > 0) return nullptr;
  if (ring->empty<ReadyRing::Look::close>()) return nullptr;
  OpRecord* const op = ring->take_newest(wanted, most_looks);
  rouse();  // a thread that looked meanwhile found nothing
  return op;
}

OpRecord* ThreadPool::take_wanted_anywhere(const Wanted& wanted) {
  // One thread at a time: while one thread searches, others would find nothing.
  MutexLock lock(search_mutex_);
  const auto keep = [&](OpRecord& op) {
    if (!searched_->put(op)) by_priority_.put(op);
  };
  // Move the ops that are ready now to where they can be inspected. Not more, since other threads may put ops as fast
  // as this thread takes them.
  for (PoolRing* ring = first(); ring != nullptr; ring = ring->next) {
    if (ring == searched_) continue;
    for (std::uint64_t left = ring->size(); left > 0; --left) {
      OpRecord* const moved = ring->take_some<ReadyRing::Look::close>(*searched_);
      if (moved == nullptr) break;
      keep(*moved);
    }
  }
  for (std::uint64_t left = from_others_.size(); left > 0; --left) {
    if (OpRecord* const moved = from_others_.take()) keep(*moved);
  }
  OpRecord* op = searched_->take_newest(wanted, std::numeric_limits<std::uint64_t>::max());
  if (op == nullptr) op = by_priority_.take_wanted(wanted, PriorityQueue::Search::all);
  rouse();
  return op;
}

bool ThreadPool::work_in_sight() const {
  if (helps_ != nullptr) return helps_->by_priority_.any_urgent();
  if (by_priority_.any() || from_others_.size() > 0) return true;
  for (const PoolRing* ring = first(); ring != nullptr; ring = ring->next) {
    if (!ring->empty<ReadyRing::Look::close>()) return true;
  }
  return false;
}

bool ThreadPool::make_ring(Port& port) noexcept try {
  if (port.ring != nullptr || port.pushed.load(std::memory_order_relaxed) == 0) return false;
  MutexLock lock(mutex_);
  port.ring = &new_ring();
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

PoolRing& ThreadPool::new_ring() {
  PoolRing& ring = rings_.emplace_back();
  ring.pool = this;
  ring.next = first_.load(std::memory_order_relaxed);
  first_.store(&ring, std::memory_order_release);
  return ring;
}

// ---- threads ----

void ThreadPool::rouse() {
  // A thread that is about to sleep, or to wait inside an op, lowers `awake`, passes the heavy half of the fence, and
  // looks for ready ops. So either it sees the op, or this thread sees the lowered count.
  AsymmetricFence::light();
  if (counts_.awake.load(std::memory_order_relaxed) >= counts_.most_awake) return;
  // A read-modify-write: if another thread stops searching, the later of the two sees what the earlier one did.
  if (searching_.fetch_add(0, std::memory_order_acq_rel) > 0) return;
  if (counts_.awake.load(std::memory_order_seq_cst) < counts_.most_awake) wake_or_spawn();
}

void ThreadPool::wake_or_spawn() {
  MutexLock lock(mutex_);
  if (searching_ > 0 || counts_.awake >= counts_.most_awake || stopping_) return;
  if (asleep_ > wakes_) {
    ++wakes_;
    ++searching_;
    ++counts_.awake;
    woken_.notify_one();
  } else {
    spawn();  // may fail: fewer threads still make progress
  }
}

bool ThreadPool::spawn() {
  if (threads() >= counts_.most_awake + of_.options.max_spare_threads) return false;
  ++searching_;
  ++counts_.awake;
  try {
    threads_.reserve(threads_.size() + 1);
    if (unused_ == nullptr) unused_ = &new_ring();
    threads_.push_back(of_.ports.start_thread([this, ring = unused_] { serve(*ring); }));
    unused_ = nullptr;
    return true;
  } catch (const std::exception&) {
    --searching_;
    --counts_.awake;
    return false;
  }
}

void ThreadPool::serve(PoolRing& ring) {
  call_start_hook(of_.options.on_thread_start);
  ring.keep_none();
  of_.ports.mine().ring = &ring;
  Worker worker{.ring = &ring, .from = &ring, .from_closely = &ring};
  current_ = {&policy_, &worker};
  for (OpRecord* op = search(worker); op != nullptr;) {
    of_.run(*op, *this);
    const Rest rest = too_many_awake() ? retire() : Rest::none;
    if (rest == Rest::ended) break;
    if (rest == Rest::none) {
      op = next(worker);
      if (op != nullptr) continue;
      searching_.fetch_add(1, std::memory_order_seq_cst);
    }
    op = search(worker);
  }
  current_ = {nullptr, nullptr};
}

OpRecord* ThreadPool::search(Worker& worker) {
  const auto pause = [](int looks) {
    constexpr int longest_pause = 64;
    for (int left = std::min(1 << std::min(looks, 20), longest_pause); left > 0; --left) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  };
  of_.out_of_work();
  Clock::time_point yielding_since;
  for (int looks = 0;; ++looks) {
    const bool closely = looks >= plain_searches;
    OpRecord* const op =
        closely ? look_around<ReadyRing::Look::close>(worker) : look_around<ReadyRing::Look::plain>(worker);
    if (op != nullptr) {
      stop_searching();
      return op;
    }
    if (loops_.want_help()) {
      help();
      // Look closely from now on: plain looks would miss an op that its pusher keeps, and the thread would loop for
      // ever.
      looks = plain_searches;
    }
    if (looks < spinning_searches) {
      pause(looks);
      continue;
    }
    const Clock::time_point now = Clock::now();
    if (looks == spinning_searches) yielding_since = now;
    if (is_patient(yielding_since, now)) {
      yield(now);
    } else {
      if (sleep() == Rest::ended) return nullptr;
      looks = plain_searches;
    }
  }
}

bool ThreadPool::is_patient(Clock::time_point yielding_since, Clock::time_point now) const {
  if (now < crowded_until_.load(std::memory_order_relaxed)) return false;
  return now - yielding_since < (searching_.load(std::memory_order_relaxed) == 1 ? lone_patience : patience);
}

void ThreadPool::yield(Clock::time_point now) {
  std::this_thread::yield();
  const Clock::time_point back = Clock::now();
  if (back - now >= long_yield) crowded_until_.store(back + crowded_for, std::memory_order_relaxed);
}

void ThreadPool::stop_searching() {
  if (searching_.fetch_sub(1, std::memory_order_seq_cst) == 1 && counts_.awake < counts_.most_awake && worth_waking()) {
    rouse();
  }
}

void ThreadPool::help() noexcept {
  stop_searching();
  loops_.help({this, [](const void* of) {
                 const ThreadPool& pool = *static_cast<const ThreadPool*>(of);
                 return pool.wants_thread_back() || pool.work_in_sight();
               }});
  searching_.fetch_add(1, std::memory_order_seq_cst);
}

void ThreadPool::run_loop(const Running& op, const PieceLoop& loop) {
  loops_.run(op, loop, [this] { rouse(); });
}

ThreadPool::Rest ThreadPool::sleep() {
  MutexLock lock(mutex_);
  // In this order, so that a thread that sees no searching thread also sees the lowered `awake`.
  counts_.awake.fetch_sub(1, std::memory_order_seq_cst);
  searching_.fetch_sub(1, std::memory_order_seq_cst);
  AsymmetricFence::heavy();  // see rouse()
  if (!worth_waking()) return wait_for_wake();
  ++counts_.awake;
  ++searching_;
  lock.unlock();
  std::this_thread::yield();  // another thread may need this core to finish what makes the work appear
  return Rest::woken;
}

ThreadPool::Rest ThreadPool::retire() {
  of_.out_of_work();  // this thread may have finished the last op
  MutexLock lock(mutex_);
  if (counts_.awake <= counts_.most_awake) return Rest::none;
  counts_.awake.fetch_sub(1, std::memory_order_seq_cst);
  return wait_for_wake();
}

ThreadPool::Rest ThreadPool::wait_for_wake() {
  ++asleep_;
  while (wakes_ == 0 && !stopping_) woken_.wait(mutex_);
  --asleep_;
  if (wakes_ == 0) return Rest::ended;
  --wakes_;
  return Rest::woken;
}

void ThreadPool::stop() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    woken_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- waits inside ops ----

void ThreadPool::block() {
  MutexLock lock(mutex_);
  ++blocked_;
  counts_.awake.fetch_sub(1, std::memory_order_seq_cst);
  // Other threads also take the ops of a helping pool.
  if (helps_ == nullptr && threads() == blocked_ && !spawn()) {
    --blocked_;
    ++counts_.awake;
    throw Error("a wait inside an op would leave " + name_ + " without a thread: " + std::to_string(threads()) +
                " wait already, max_spare_threads = " + std::to_string(of_.options.max_spare_threads));
  }
  lock.unlock();
  AsymmetricFence::heavy();  // see rouse()
  if (worth_waking()) rouse();
}

void ThreadPool::let_others_in() {
  const auto until = Clock::now() + longest_courtesy;
  const auto slot_is_free = [&] { return counts_.awake.load() - searching_.load() < counts_.most_awake; };
  while (slot_is_free() && work_in_sight() && Clock::now() < until) std::this_thread::yield();
}

void ThreadPool::unblock_other() {
  MutexLock lock(mutex_);
  --blocked_;
  ++counts_.awake;
}

bool ThreadPool::lacks_threads() const {
  MutexLock lock(mutex_);
  return asleep_ <= wakes_ && threads() >= counts_.most_awake + few_spares;
}

int ThreadPool::spares() const {
  MutexLock lock(mutex_);
  return std::max(0, threads() - counts_.most_awake);
}

// ---- fork ----

void ThreadPool::forget_threads(Copied copied) noexcept {
  forget(threads_);
  woken_.forget_waiters();
  from_others_.forget_threads();
  asleep_ = wakes_ = blocked_ = 0;
  searching_ = counts_.awake = 0;
  if (copied == Copied::whole) return loops_.forget_threads();
  // With these counts, a thread that returns from its op leaves its graph, since urgent ops seem to be ready, and ends,
  // since too many threads seem to be awake.
  constexpr int too_many = 1 << 30;
  stopping_ = true;
  counts_.awake = counts_.urgent = too_many;
}

}  // namespace windrow
