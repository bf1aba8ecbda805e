// What engines do around fork(), so that a forked child has engines that work, or say why they do not.
//
// Only the thread that forks exists in the child. Before the process is copied, each engine is brought to a state that
// can do without the others: pushes from outside are held at the engine's gate until nothing is pending, then nobody is
// let into a push, and all mutexes are held. In the parent all goes on. In the child the engine forgets its threads and
// begins anew. Where it did not come to rest in time the child's copy is torn: whatever is asked of it is refused, and
// its end leaks it.
//
// Order of locks, from the first to the last: that of Forks; those of the process; of each engine those outside a push;
// that of all ports; of each engine its ports, and those that are also taken inside a push.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "windrow/engine/mutex.h"

namespace windrow {

class Core;
class Lane;
class LaneState;

/// What a child has of an engine.
enum class Copied {
  whole,
  torn,  ///< ops were pending; they never run
};

/// Locks or unlocks what it is called with.
class EachMutex {
 public:
  static constexpr EachMutex locking() { return EachMutex(true); }
  static constexpr EachMutex unlocking() { return EachMutex(false); }

  void operator()(Mutex& mutex) const {
    (*this)(mutex, [] {});
  }
  /// The mutex guards what inside() goes through: it is held all the while.
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

/// In a forked child: the thread does not exist, and can be neither joined nor detached.
inline void forget(std::thread& thread) noexcept { ::new (&thread) std::thread; }
inline void forget(std::vector<std::thread>& threads) noexcept {
  for (std::thread& thread : threads) forget(thread);
  threads.clear();
}

/// Of one engine. A lane counts as not started while a thread forks, so that each push comes by here and others pay
/// nothing. Any thread.
class ForkGate {
 public:
  /// Throws std::bad_alloc if the process cannot be told to call Forks.
  ForkGate();

  /// Outside ops it waits while a thread forks. Throws MisuseError in a child whose copy is torn.
  void pass() WINDROW_EXCLUDES(mutex_);
  void refuse_torn() const;
  bool torn() const { return torn_.load(std::memory_order_relaxed); }
  /// Calls f() unless a thread forks, which then begins after that.
  template <class F>
  void if_open(F&& f) WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (shut_ == 0) f();
  }

 private:
  friend class Forks;

  Mutex mutex_;
  CondVar opened_;
  int shut_ WINDROW_GUARDED_BY(mutex_) = 0;  // threads that are about to fork
  std::atomic<bool> torn_{false};            // written before the child has a second thread

  // Guarded by the mutex of Forks:
  Core* next_ = nullptr;
  bool stopped_ = false;          // its ports, by the thread that forks
  Copied copied_ = Copied::torn;  // if it were now
};

/// The device has passed what was issued on a lane so far.
struct Passage {
  enum class State { awaited, passed, failed };
  std::uint64_t serial = 0;  ///< of the point
  std::atomic<State> state{State::awaited};
};

/// The engines of the process. A thread that forks holds the mutex from its last look at them until the copy is made.
class Forks {
 public:
  /// Throws std::bad_alloc the first time.
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

  /// Whether some engine is not at rest and may still be waited for. Asks lanes for their last points.
  bool worth_waiting(Clock::time_point begun) noexcept;
  /// Holds all mutexes and ports, and notes which engines are at rest.
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
  int forking_ WINDROW_GUARDED_BY(mutex_) = 0;  // threads that wait for engines to come to rest
  /// In a child: those of the parent. A device does not survive a fork, and its lanes' threads cannot be joined.
  std::vector<std::shared_ptr<Lane>> lost_lanes_ WINDROW_GUARDED_BY(mutex_);
};

/// Of what is one for the process.
void each_mutex_of_names(EachMutex f);
void each_mutex_of_page_guards(EachMutex f);

}  // namespace windrow
