// The actions of engines around fork(), so that engines in a forked child work, or report why they do not.
//
// Only the thread that forks exists in the child. So before the process is copied, each engine is brought to a state
// that needs no other thread. First, pushes from outside are held at the engine's gate until nothing is pending. Then
// all threads are kept out of pushes, and all mutexes are locked. The parent then continues. In the child, the engine
// discards its threads and starts new ones later. If an engine did not come to rest in time, the child's copy is
// unusable: it refuses calls, and is leaked when it ends.
//
// Order of locks, from first to last:
//   1. the mutex of Forks
//   2. the mutexes of the process
//   3. for each engine, the mutexes that are taken outside a push
//   4. the mutex of all engines' ports
//   5. for each engine, its ports and the mutexes that are also taken inside a push
//   6. the mutexes of the memory of callables
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "windrow/engine/internal/mutex.h"

namespace windrow {

class Core;
class Lane;
class LaneState;

/// The state of a child's copy of an engine.
enum class Copied {
  whole,
  unusable,  ///< ops were pending at the fork; they never run in the child
};

/// Locks or unlocks each mutex that it is called with.
class EachMutex {
 public:
  static constexpr EachMutex locking() { return EachMutex(true); }
  static constexpr EachMutex unlocking() { return EachMutex(false); }

  void operator()(Mutex& mutex) const {
    (*this)(mutex, [] {});
  }
  /// As above, and calls inside() with the mutex held. The mutex guards what inside() traverses.
  template <class Inside>
  void operator()(Mutex& mutex, Inside&& inside) const WINDROW_UNCHECKED_LOCKING {
    if (locks_) mutex.lock();
    inside();
    if (!locks_) mutex.unlock();
  }

 private:
  explicit constexpr EachMutex(bool locks) : locks_(locks) {}

  bool locks_;
};

/// To be called in a forked child, where the thread does not exist, and can be neither joined nor detached.
inline void forget(std::thread& thread) noexcept { ::new (&thread) std::thread; }
inline void forget(std::vector<std::thread>& threads) noexcept {
  for (std::thread& thread : threads) forget(thread);
  threads.clear();
}

/// The gate of one engine. While a thread forks, each lane is marked as not started, so that each push passes the gate;
/// at other times pushes pay nothing for it. Members may be called by any thread.
class ForkGate {
 public:
  /// Throws std::bad_alloc if pthread_atfork cannot register the handlers of Forks.
  ForkGate();

  /// Waits while a thread forks, unless called inside an op. Throws MisuseError in a child whose copy is unusable.
  void pass() WINDROW_EXCLUDES(mutex_);
  void refuse_unusable() const;
  bool unusable() const { return unusable_.load(std::memory_order_relaxed); }
  /// Calls f() unless a thread forks. A fork that begins meanwhile waits until f() has returned.
  template <class F>
  void if_open(F&& f) WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (shut_ == 0) f();
  }

 private:
  friend class Forks;

  Mutex mutex_;
  CondVar opened_;
  int shut_ WINDROW_GUARDED_BY(mutex_) = 0;  // the number of threads that are about to fork
  std::atomic<bool> unusable_{false};        // written before the child has a second thread

  // Guarded by the mutex of Forks:
  Core* next_ = nullptr;
  bool stopped_ = false;              // whether the thread that forks has closed the engine's ports
  Copied copied_ = Copied::unusable;  // the state that a copy would have now
};

/// Whether a device has passed the last point of a lane.
struct Passage {
  enum class Outcome { awaited, passed, failed };
  std::uint64_t serial = 0;  ///< the point's serial number
  std::atomic<Outcome> state{Outcome::awaited};
};

/// The engines of the process. A thread that forks holds the mutex from its last check of the engines until the copy is
/// made.
class Forks {
 public:
  /// The first call may throw std::bad_alloc.
  static Forks& of_process();

  void add(Core& core) noexcept WINDROW_EXCLUDES(mutex_);
  void remove(Core& core) noexcept WINDROW_EXCLUDES(mutex_);

 private:
  using Clock = std::chrono::steady_clock;

  static void prepare() noexcept;
  static void in_parent() noexcept;
  static void in_child() noexcept;

  template <class F>
  void for_each(F&& f);

  /// Whether some engine is not at rest, and its `fork_patience` has not passed. Asks lanes to report their last
  /// points.
  bool worth_waiting(Clock::time_point begun) noexcept;
  /// Locks all mutexes and closes all ports, and notes which engines are at rest.
  void stop() noexcept;
  void go_on() noexcept;

  static bool has_time(const Core& core, Clock::time_point begun);
  static void shut(Core& core);
  static void open(Core& core);
  static void ask_lanes(Core& core);
  static bool has_passed(const LaneState& lane);
  static bool at_rest(Core& core);
  static void each_mutex_before_ports(Core& core, EachMutex f);
  static void each_mutex_after_ports(Core& core, EachMutex f);
  void begin_anew(Core& core) noexcept;

  Mutex mutex_;
  Core* first_ WINDROW_GUARDED_BY(mutex_) = nullptr;
  int forking_ WINDROW_GUARDED_BY(mutex_) = 0;  // the number of threads that wait for engines to come to rest
  /// In a child, the lanes of the parent. They never end: a device does not survive a fork, and the threads of its
  /// lanes cannot be joined.
  std::vector<std::shared_ptr<Lane>> lost_lanes_ WINDROW_GUARDED_BY(mutex_);
};

/// Visits the mutexes of process-wide tables.
void each_mutex_of_names(EachMutex f);
void each_mutex_of_page_guards(EachMutex f);
/// Locked last and unlocked first, since callables are made and destroyed with other mutexes held.
void each_mutex_of_callables(EachMutex f);

}  // namespace windrow
