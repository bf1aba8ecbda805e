// A crew: threads that run the ready ops of one queue, at most `slots` at a time.
//
// The policies `serial` and `chaos` have one crew each. A crew knows nothing of dependencies: it is handed ready ops
// and runs them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/ports.h"
#include "policy/ready_queue.h"
#include "policy/slots.h"
#include "windrow/engine/mutex.h"

namespace windrow {

struct CrewOptions {
  std::string name;
  int slots = 1;
  /// Threads that may be added while ops of this crew wait inside.
  int max_spares = 0;
  /// Ops run on the threads that push; the crew's own serve only what becomes ready when none of those is there.
  bool callers_run = false;
  std::function<void()> on_thread_start;
  Ports* ports = nullptr;  ///< of the engine: its threads have one each
};

/// Owner of its threads. All members may be called by any thread.
///
/// Invariants, under mutex_:
///   1. active_ counts ops that run and do not wait inside. It exceeds the slots only by ops whose wait has ended.
///   2. If an op may be taken up, a thread is awake to do so, or will look again before it sleeps.
///   3. Where callers run, the crew's own threads take nothing up as long as a caller is about to.
class Crew final : public Slots {
 public:
  Crew(CrewOptions options, std::unique_ptr<ReadyQueue> queue, RunOp run);
  ~Crew() override;

  /// Makes sure that one thread stands ready; throws Error if none can be started. Where callers run, it is needed only
  /// for ops that become ready without one.
  void start();
  void add(OpRecord& op) noexcept;

  /// Callers run: this thread is about to make an op ready, and will then call help() to run it.
  void announce();
  /// Callers run: takes the turn, and runs ops until none is ready.
  void help(Patience patience);

  void block() override;
  void let_others_in() override;
  void unblock(Patience patience) override;
  bool may_unblock_other() const override;
  void unblock_other() override;
  OpRecord* take_wanted(const Wanted& wanted) override;
  bool lacks_threads() const override;
  /// As RunningPolicy.
  OpRecord* take_wanted_anywhere(const Wanted& wanted);

  /// Joins the threads; the queue is empty by then. Twice is fine.
  void stop();

  // ---- fork; see RunningPolicy ----
  void each_mutex(EachMutex f) { f(mutex_); }
  void forget_threads(Copied copied) noexcept WINDROW_UNCHECKED_LOCKING;

  int spares() const WINDROW_EXCLUDES(mutex_);
  std::size_t ready() const WINDROW_EXCLUDES(mutex_);
  /// Looks at the queue under the crew's mutex.
  template <class F>
  auto inspect(F&& f) const {
    MutexLock lock(mutex_);
    return f(*queue_);
  }

 private:
  bool slot_free() const WINDROW_REQUIRES(mutex_) { return !torn_ && active_ < options_.slots; }
  bool may_take() const WINDROW_REQUIRES(mutex_);
  void serve() WINDROW_EXCLUDES(mutex_);
  void take_and_run() WINDROW_REQUIRES(mutex_);
  /// The op, which was taken up.
  OpRecord* taken(OpRecord* op) WINDROW_REQUIRES(mutex_);
  void sleep() WINDROW_REQUIRES(mutex_);
  /// The queue waits for a certain op: until when it may.
  std::chrono::steady_clock::time_point patience_ends() const WINDROW_REQUIRES(mutex_);
  /// Wakes or starts a thread if an op may be taken up.
  void rouse() WINDROW_REQUIRES(mutex_);
  /// False if the limit is reached or the system refuses.
  bool spawn() WINDROW_REQUIRES(mutex_);
  int own_threads() const WINDROW_REQUIRES(mutex_) { return static_cast<int>(threads_.size()); }
  int regular_threads() const { return options_.callers_run ? 0 : options_.slots; }

  const CrewOptions options_;
  const RunOp run_;
  const bool holds_back_;  // the queue may

  mutable Mutex mutex_;
  CondVar changed_;  // an op may be taken up, a turn is free, or stopping_
  std::unique_ptr<ReadyQueue> queue_ WINDROW_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ WINDROW_GUARDED_BY(mutex_);
  int active_ WINDROW_GUARDED_BY(mutex_) = 0;
  int active_own_ WINDROW_GUARDED_BY(mutex_) = 0;   // of these, on own threads
  int idle_ WINDROW_GUARDED_BY(mutex_) = 0;         // own threads asleep
  int blocked_own_ WINDROW_GUARDED_BY(mutex_) = 0;  // own threads whose op waits inside
  int callers_ WINDROW_GUARDED_BY(mutex_) =
      0;                                       // threads between announce() and the end of help(), while they run no op
  int spares_ WINDROW_GUARDED_BY(mutex_) = 0;  // threads started for waits
  std::chrono::steady_clock::time_point last_event_
      WINDROW_GUARDED_BY(mutex_);  // the queue was empty, or an op was taken up or ended
  bool stopping_ WINDROW_GUARDED_BY(mutex_) = false;
  bool torn_ WINDROW_GUARDED_BY(mutex_) = false;  // nothing is taken up any more, and nobody waits for a turn
};

}  // namespace windrow
