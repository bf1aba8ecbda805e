// The policy `pool`: worker threads, each with a ring of ready ops, that take from each other's and from those of the
// threads that push.
//
// What a worker makes ready by its op it goes on with by itself (run.cc), so that a chain stays on its core; the pool
// sees the rest. Whoever makes an op ready wakes a worker only if none is looking for work; one that finds some, and
// sees more, wakes the next. A worker without work looks around for a while, ever less often so that the threads that
// push can get ahead of it, then offers its core to others between its looks, then sleeps.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "core/ports.h"
#include "policy/ready_queue.h"
#include "policy/running_policy.h"
#include "policy/slots.h"
#include "windrow/engine/mutex.h"

namespace windrow {

class WorkerPool final : public RunningPolicy, public Slots {
 public:
  explicit WorkerPool(PolicyContext context);
  ~WorkerPool() override { stop(); }

  void start(LaneState& lane) override;
  void add(OpRecord& op) noexcept override;
  bool work_in_sight() const override;
  void end_row() override;
  void hand_over() noexcept override;
  void stop() override;
  int spares() const override;
  std::uint64_t ready() const override;
  void each_mutex(EachMutex f) override;
  void forget_threads(Copied copied) noexcept override WINDROW_UNCHECKED_LOCKING;
  bool on_worker() const override { return current_.pool == this; }

  void block() override;
  void let_others_in() override;
  void unblock(Patience patience) override;
  bool may_unblock_other() const override { return true; }
  void unblock_other() override;
  OpRecord* take_wanted(const Wanted& wanted) override;
  OpRecord* take_wanted_anywhere(const Wanted& wanted) override;
  bool lacks_threads() const override;
  void run_loop(const Running& op, const PieceLoop& loop) override;

 private:
  struct Worker {
    Port* port;
    Port* from;          ///< in whose ring it found ops the last time
    Port* from_closely;  ///< the same, when it looked closely
    unsigned takes = 0;
    unsigned turns = 0;  ///< takes in turned order that looked for low priority, or did not
  };
  struct Current {
    const WorkerPool* pool = nullptr;
    Worker* worker = nullptr;
  };
  static constinit thread_local Current current_;

  void serve();
  OpRecord* take(Worker& worker);
  OpRecord* take_urgent() WINDROW_EXCLUDES(priority_mutex_);
  OpRecord* take_background() WINDROW_EXCLUDES(priority_mutex_);
  OpRecord* take_wanted_by_priority(const Wanted& wanted) WINDROW_EXCLUDES(priority_mutex_);
  /// What take() leaves for last comes first: low priority, then a ring, one's own or another, behind the one of the
  /// last such take; high priority last.
  template <ReadyRing::Look look>
  OpRecord* take_turned(Worker& worker);
  template <ReadyRing::Look look>
  OpRecord* take_from_rings(Worker& worker);
  /// Until it finds an op; null when the pool ends. The thread is counted as searching meanwhile.
  OpRecord* search(Worker& worker);
  /// A thread that searches has found something to do.
  void stop_searching();
  /// Whether a thread that is asleep would find something to do.
  bool worth_waking() const { return loops_.want_help() || work_in_sight(); }
  /// A thread that searches helps in a loop until there is work for it elsewhere; then it searches on.
  void help() noexcept;
  bool wants_helper_back() const { return wants_thread_back() || work_in_sight(); }
  void put_urgent(OpRecord& op) noexcept WINDROW_EXCLUDES(priority_mutex_);
  void put_background(OpRecord& op) noexcept WINDROW_EXCLUDES(priority_mutex_);
  /// An op was made ready: sees to it that somebody looks.
  void rouse();
  void wake_or_spawn() WINDROW_EXCLUDES(mutex_);
  bool spawn() WINDROW_REQUIRES(mutex_);
  enum class Rest {
    none,
    woken,  ///< and counted as searching
    ended,  ///< the pool ends
  };
  /// A thread that searches falls asleep, unless there is work in sight.
  Rest sleep() WINDROW_EXCLUDES(mutex_);
  /// A thread that ran an op falls asleep, if more are awake than there are slots.
  Rest retire() WINDROW_EXCLUDES(mutex_);
  Rest wait_for_wake() WINDROW_REQUIRES(mutex_);
  int threads() const WINDROW_REQUIRES(mutex_) { return static_cast<int>(threads_.size()); }

  const int max_spares_;
  const std::function<void()> on_thread_start_;
  const RunOp run_;
  const std::function<void()> out_of_work_;
  Ports& ports_;
  Loops loops_;

  alignas(64) std::atomic<int> searching_{0};  ///< of those awake
  std::atomic<bool> stopping_{false};
  std::atomic<int> background_count_{0};

  alignas(64) Mutex priority_mutex_;
  PriorityQueue urgent_ WINDROW_GUARDED_BY(priority_mutex_);      // of positive priority, and what rings cannot hold
  PriorityQueue background_ WINDROW_GUARDED_BY(priority_mutex_);  // of negative priority

  Mutex search_mutex_;  // taken before the others

  mutable Mutex mutex_;
  CondVar woken_;
  std::vector<std::thread> threads_ WINDROW_GUARDED_BY(mutex_);
  int asleep_ WINDROW_GUARDED_BY(mutex_) = 0;
  int wakes_ WINDROW_GUARDED_BY(mutex_) = 0;  // given to sleepers who have not seen them yet
  int blocked_ WINDROW_GUARDED_BY(mutex_) = 0;
};

}  // namespace windrow
