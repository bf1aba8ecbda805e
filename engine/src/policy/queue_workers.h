// Threads that run the ready ops of one queue under a mutex, at most `slots` at a time.
//
// The policies `serial` and `chaos` have one such object each. It knows nothing of dependencies: it gets ready ops and
// runs them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "policy/ready_queue.h"
#include "policy/slots.h"
#include "record/ports.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

struct QueueWorkersOptions {
  std::string name;
  int slots = 1;
  /// The most threads that may be added while its ops wait inside.
  int max_spares = 0;
  /// Ops run on the threads that push. The object's own threads run only ops that become ready while no such thread is
  /// there.
  bool callers_run = false;
  std::function<void()> on_thread_start;
  Ports* ports = nullptr;  ///< the engine's ports, one for each thread
};

/// Owner of its threads. Any thread may call the members.
///
/// Invariants, under mutex_:
///   1. active_ counts ops that run and do not wait inside. It exceeds the slots only by ops whose wait has ended.
///   2. If an op may be taken, a thread is awake to take it, or will look again before it sleeps.
///   3. If callers run, the object's own threads take no op while a caller is about to take one.
class QueueWorkers final : public Slots {
 public:
  QueueWorkers(QueueWorkersOptions options, std::unique_ptr<ReadyQueue> queue, RunOp run);
  ~QueueWorkers() override;

  /// Ensures that there is a thread; throws Error if none can be started. If callers run, this is needed only for
  /// ops that become ready without a caller.
  void start();
  void add(OpRecord& op) noexcept;

  /// If callers run: this thread is about to make an op ready, and will then call help() to run it.
  void announce();
  /// If callers run: takes the turn, and runs ops until none is ready.
  void help(Patience patience);

  void block() override;
  void let_others_in() override;
  void unblock(Patience patience) override;
  bool may_unblock_other() const override;
  void unblock_other() override;
  OpRecord* take_wanted(const Wanted& wanted) override;
  bool lacks_threads() const override;
  /// See RunningPolicy.
  OpRecord* take_wanted_anywhere(const Wanted& wanted);

  /// Joins the threads. Called when the queue is empty. May be called twice.
  void stop();

  // ---- fork; see RunningPolicy ----
  void each_mutex(EachMutex f) { f(mutex_); }
  void forget_threads(Copied copied) noexcept WINDROW_UNCHECKED_LOCKING;

  int spares() const WINDROW_EXCLUDES(mutex_);
  std::size_t ready() const WINDROW_EXCLUDES(mutex_);

 private:
  bool slot_free() const WINDROW_REQUIRES(mutex_) { return !unusable_ && active_ < options_.slots; }
  bool may_take() const WINDROW_REQUIRES(mutex_);
  void serve() WINDROW_EXCLUDES(mutex_);
  void take_and_run() WINDROW_REQUIRES(mutex_);
  void sleep() WINDROW_REQUIRES(mutex_);
  /// Wakes or starts a thread if an op may be taken.
  void rouse() WINDROW_REQUIRES(mutex_);
  /// False if the limit is reached or the system refuses.
  bool spawn() WINDROW_REQUIRES(mutex_);
  int own_threads() const WINDROW_REQUIRES(mutex_) { return static_cast<int>(threads_.size()); }
  int regular_threads() const { return options_.callers_run ? 0 : options_.slots; }

  const QueueWorkersOptions options_;
  const RunOp run_;

  mutable Mutex mutex_;
  CondVar changed_;  // an op may be taken, a turn is free, or stopping_
  std::unique_ptr<ReadyQueue> queue_ WINDROW_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ WINDROW_GUARDED_BY(mutex_);
  int active_ WINDROW_GUARDED_BY(mutex_) = 0;
  int active_own_ WINDROW_GUARDED_BY(mutex_) = 0;   // of these, on own threads
  int idle_ WINDROW_GUARDED_BY(mutex_) = 0;         // own threads asleep
  int blocked_own_ WINDROW_GUARDED_BY(mutex_) = 0;  // own threads whose op waits inside
  int callers_ WINDROW_GUARDED_BY(mutex_) =
      0;                                       // threads between announce() and the end of help(), while they run no op
  int spares_ WINDROW_GUARDED_BY(mutex_) = 0;  // threads started for waits
  bool stopping_ WINDROW_GUARDED_BY(mutex_) = false;
  bool unusable_ WINDROW_GUARDED_BY(mutex_) = false;  // no op is taken any more, and no thread waits for a turn
};

}  // namespace windrow
