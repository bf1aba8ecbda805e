// A crew: threads that run the ready ops of one queue, at most `slots` at a time.
//
// Each running policy is made of crews. A crew knows nothing of dependencies: it is handed ready ops and runs them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "mutex.h"
#include "ready_queue.h"

namespace windrow {

struct CrewOptions {
  std::string name;
  int slots = 1;
  /// Threads that may be added while ops of this crew wait inside.
  int max_spares = 0;
  /// Ops run on the threads that call help(); the crew's own serve only while an op waits inside.
  bool callers_run = false;
  std::function<void()> on_thread_start;
};

/// Owner of its threads. All members may be called by any thread.
///
/// Invariants, under mutex_:
///   1. active_ counts ops that run and do not wait inside. It exceeds slots only by ops whose wait has ended, and in a
///      crew whose callers run never.
///   2. If an op may be taken up, a thread is awake to do so, or will look again before it sleeps.
class Crew {
 public:
  using Run = std::function<void(OpRecord&, Crew&)>;

  Crew(CrewOptions options, std::unique_ptr<ReadyQueue> queue, Run run);
  ~Crew();

  /// Makes sure that one thread stands ready; throws Error if none can be started.
  void start();
  void add(OpRecord& op);

  enum class Patience { wait_for_turn, give_up_if_taken };
  /// Callers run: takes the turn, runs ops until none is ready. A thread that finds the turn taken and gives up may do
  /// so because the holder looks again before it lets go.
  void help(Patience patience);

  /// An op on this thread starts to wait: its slot is free until unblock(). Throws Error if nobody would be left to run
  /// what it waits for.
  void block();
  void unblock();

  /// Joins the threads; the queue is empty by then. Twice is fine.
  void stop();

  int spares() const WINDROW_EXCLUDES(mutex_);
  /// Looks at the queue under the crew's mutex.
  template <class F>
  auto inspect(F&& f) const {
    MutexLock lock(mutex_);
    return f(*queue_);
  }

 private:
  bool may_take() const WINDROW_REQUIRES(mutex_);
  void serve() WINDROW_EXCLUDES(mutex_);
  void take_and_run() WINDROW_REQUIRES(mutex_);
  void sleep() WINDROW_REQUIRES(mutex_);
  /// Wakes or starts a thread if an op may be taken up.
  void rouse() WINDROW_REQUIRES(mutex_);
  /// False if the limit is reached or the system refuses.
  bool spawn() WINDROW_REQUIRES(mutex_);
  int own_threads() const WINDROW_REQUIRES(mutex_) { return static_cast<int>(threads_.size()); }

  const CrewOptions options_;
  const Run run_;

  mutable Mutex mutex_;
  CondVar changed_;  // an op may be taken up, a turn is free, or stopping_
  std::unique_ptr<ReadyQueue> queue_ WINDROW_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ WINDROW_GUARDED_BY(mutex_);
  int active_ WINDROW_GUARDED_BY(mutex_) = 0;
  int idle_ WINDROW_GUARDED_BY(mutex_) = 0;         // own threads asleep
  int blocked_ WINDROW_GUARDED_BY(mutex_) = 0;      // ops that wait inside
  int blocked_own_ WINDROW_GUARDED_BY(mutex_) = 0;  // of these, on own threads
  int spares_ WINDROW_GUARDED_BY(mutex_) = 0;       // threads started for waits
  std::uint64_t puts_ WINDROW_GUARDED_BY(mutex_) = 0;
  bool stopping_ WINDROW_GUARDED_BY(mutex_) = false;
};

}  // namespace windrow
