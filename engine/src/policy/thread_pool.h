// Threads that run ready ops, a limited number at a time. Each thread has a ring of ready ops. Each pushing thread also
// has one, in the first pool into which it puts an op. A thread whose ring is empty takes from other rings. All other
// threads (those of other pools, and those that only complete ops) share one queue.
//
// A thread continues with an op that its own op made ready, without asking the pool (core/run.cc), so a chain stays on
// its core. The pool sees the other ready ops.
//
// A thread without work polls at growing intervals, so that pushing threads can get ahead of it; then it yields its
// core between polls; then it sleeps. Only one thread polls for long: waking one takes 50 to 150 microseconds on a
// virtual machine. Polls end by time and not by number: if another program uses the core, a single yield may take
// milliseconds, and a thread that sleeps gets its core back sooner than one that yields. A thread that makes an op
// ready wakes another one only if none is searching. A searching thread that finds work, and sees more, wakes the next.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "policy/by_priority.h"
#include "policy/op_queue.h"
#include "policy/running_policy.h"
#include "policy/slots.h"
#include "record/ports.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

struct ThreadPoolOptions {
  int threads;       ///< at most this many ops run at a time
  std::string name;  ///< for messages
  /// The lane whose ops the pool gets; null if it gets those of all lanes.
  const LaneState* lane = nullptr;
  /// If set, the threads only take urgent ops of this pool.
  ThreadPool* helps = nullptr;
};

/// Invariant: if an op is ready and a slot is free, a thread is awake to take the op, or will look again before it
/// sleeps. Any thread may call the members.
class ThreadPool final : public Slots {
 public:
  ThreadPool(const RunningPolicy& policy, const PolicyContext& of, ThreadPoolOptions how);
  ~ThreadPool() override { stop(); }

  /// Ensures that there is a thread. Throws Error if none can be started.
  void start() WINDROW_EXCLUDES(mutex_);
  /// Joins the threads. Called when no op is ready any more. May be called twice.
  void stop() WINDROW_EXCLUDES(mutex_);
  void add(OpRecord& op) noexcept;
  std::uint64_t ready() const {
    std::uint64_t sum = by_priority_.size() + from_others_.size();
    for (const PoolRing* ring = first(); ring != nullptr; ring = ring->next) sum += ring->size();
    return sum;
  }
  int spares() const WINDROW_EXCLUDES(mutex_);
  /// Whether the calling thread is one of a pool of `policy`.
  static bool on_thread_of(const RunningPolicy& policy) { return current_.policy == &policy; }
  OpRecord* take_wanted_anywhere(const Wanted& wanted);  ///< see RunningPolicy

  void block() override;
  void let_others_in() override;
  void unblock(Patience) override { unblock_other(); }
  bool may_unblock_other() const override { return true; }
  void unblock_other() override;
  OpRecord* take_wanted(const Wanted& wanted) override;
  bool lacks_threads() const override;
  void run_loop(const Running& op, const PieceLoop& loop) override;
  bool work_in_sight() const override;
  void end_row() override { ByPriority::turn_next(current_.worker->takes); }

  // ---- fork; see RunningPolicy ----
  void each_mutex(EachMutex f) {
    f(search_mutex_);
    f(mutex_);
    loops_.each_mutex(f);
    by_priority_.each_mutex(f);
  }
  void forget_threads(Copied copied) noexcept WINDROW_UNCHECKED_LOCKING;

 private:
  /// The state of one thread.
  struct Worker {
    PoolRing* ring;
    PoolRing* from;          ///< where the thread last found ops
    PoolRing* from_closely;  ///< the same for close looks
    Takes takes = {};
    unsigned close_looks = 0;
  };
  struct Current {
    const RunningPolicy* policy;
    Worker* worker;
  };
  static inline constinit thread_local Current current_{nullptr, nullptr};

  enum class Rest {
    none,
    woken,  ///< the thread is awake again, and counted as searching
    ended,  ///< the threads end
  };

  using Clock = std::chrono::steady_clock;
  /// The looks of a search. The first `spinning_searches` looks come at growing intervals; the first `plain_searches`
  /// of them are plain. Then the thread yields between looks, for `patience`, or for `lone_patience` if no other thread
  /// searches. For `crowded_for` after a yield of `long_yield`, threads that find nothing sleep at once.
  static constexpr int plain_searches = 6, spinning_searches = 16;
  static constexpr std::chrono::microseconds patience{25}, lone_patience{500}, long_yield{250}, crowded_for{5000};

  /// The next op of a thread that has just run one; null if none is found soon.
  OpRecord* next(Worker& worker);
  /// The same for a searching thread.
  template <ReadyRing::Look look>
  OpRecord* look_around(Worker& worker);
  template <ReadyRing::Look look>
  OpRecord* take_from_rings(Worker& worker);
  PoolRing* behind(const PoolRing* ring) const { return ring->next != nullptr ? ring->next : first(); }
  PoolRing* first() const { return first_.load(std::memory_order_acquire); }
  /// Whether the ring, which may be null, is one of this pool.
  bool owns(const PoolRing* ring) const { return ring != nullptr && ring->pool == this; }
  /// Gives the calling thread a ring of this pool if it pushes and has none yet. Returns false if it has none here.
  bool make_ring(Port& port) noexcept WINDROW_EXCLUDES(mutex_);
  PoolRing& new_ring() WINDROW_REQUIRES(mutex_);
  /// Adds an op that does not go through the calling thread's ring.
  void add_by_queue(OpRecord& op, bool has_priority) noexcept;

  /// Called after an op was made ready: ensures that a thread looks for it.
  void rouse();
  void serve(PoolRing& ring);
  /// Searches until it finds an op; null when the threads end. The thread is counted as searching meanwhile.
  OpRecord* search(Worker& worker);
  bool is_patient(Clock::time_point yielding_since, Clock::time_point now) const;
  void yield(Clock::time_point now);
  /// The searching thread has found something to do.
  void stop_searching();
  /// Whether a thread that is asleep would find something to do.
  bool worth_waking() const { return loops_.want_help() || work_in_sight(); }
  bool too_many_awake() const { return counts_.awake.load(std::memory_order_relaxed) > counts_.most_awake; }
  /// The searching thread helps in a loop until there is other work for it; then it continues to search.
  void help() noexcept;
  void wake_or_spawn() WINDROW_EXCLUDES(mutex_);
  bool spawn() WINDROW_REQUIRES(mutex_);
  /// The searching thread falls asleep, unless there is work in sight.
  Rest sleep() WINDROW_EXCLUDES(mutex_);
  /// The thread, which has run an op, falls asleep if more threads are awake than there are slots.
  Rest retire() WINDROW_EXCLUDES(mutex_);
  Rest wait_for_wake() WINDROW_REQUIRES(mutex_);
  int threads() const WINDROW_REQUIRES(mutex_) { return static_cast<int>(threads_.size()); }

  const RunningPolicy& policy_;
  const PolicyContext of_;
  const std::string name_;
  ThreadPool* const helps_;
  std::atomic<ThreadPool*> helper_{nullptr};  // also takes urgent ops of this pool; set before the first op
  Loops loops_;
  ByPriority by_priority_{counts_};  // also holds ops for which there was no memory elsewhere
  OpQueue from_others_;              // ops that threads without a ring here have made ready

  alignas(64) std::atomic<int> searching_{0};  // the number of awake threads that search
  std::atomic<bool> stopping_{false};
  std::atomic<Clock::time_point> crowded_until_{Clock::time_point{}};
  std::atomic<PoolRing*> first_{nullptr};  // of the list of all rings, which `next` links

  Mutex search_mutex_;  // taken before the other one
  PoolRing* searched_;  // ops that a search has inspected; fixed; owned by the thread that holds search_mutex_
  mutable Mutex mutex_;
  CondVar woken_;
  std::vector<std::thread> threads_ WINDROW_GUARDED_BY(mutex_);
  std::deque<PoolRing> rings_ WINDROW_GUARDED_BY(mutex_);
  PoolRing* unused_ WINDROW_GUARDED_BY(mutex_) = nullptr;  // a ring made for a thread that could not be started
  int asleep_ WINDROW_GUARDED_BY(mutex_) = 0;
  int wakes_ WINDROW_GUARDED_BY(mutex_) = 0;  // wake-ups that no sleeper has consumed yet
  int blocked_ WINDROW_GUARDED_BY(mutex_) = 0;
};

}  // namespace windrow
