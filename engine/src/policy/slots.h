// The slots of a running policy: how many ops run at a time, and how a wait inside an op changes that.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "policy/loops.h"

namespace windrow {

class LaneState;
class OpRecord;
struct Running;

/// More threads than a process can have. Options that name more count as this number, so that sums do not overflow.
inline constexpr int most_threads = 1 << 20;

/// Whether a waiting thread, which looks for ops to run meanwhile, may run this op. The op is ready, and no other
/// thread can take it during the call. Needs no memory and throws nothing.
using Wanted = std::function<bool(OpRecord&)>;

/// Numbers that a thread reads after each op. All are 0 for threads that never choose their next op.
struct SlotCounts {
  std::atomic<int> urgent{0};  ///< ready ops of positive priority
  std::atomic<int> awake{0};   ///< threads that run ops or search for them
  int most_awake = 0;          ///< how many threads should be awake; fixed before the first op

  bool want_thread_back() const {
    return urgent.load(std::memory_order_relaxed) > 0 || awake.load(std::memory_order_relaxed) > most_awake;
  }
};

class Slots {
 public:
  /// Which of the ops that its op has made ready a thread may choose as its next op.
  enum class GoesOn { with_none, with_ops_of_lane, with_any };

  explicit Slots(GoesOn how = GoesOn::with_none, const LaneState* lane = nullptr) : goes_on_(how), lane_(lane) {}
  /// The longest time for which a wait leaves its slot free after it was given up.
  static constexpr std::chrono::milliseconds longest_courtesy{10};

  enum class Patience {
    wait_for_turn,     ///< wait until no op runs
    give_up_if_taken,  ///< do not wait: other threads will run the ready ops
  };

  virtual ~Slots() = default;
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  bool goes_on() const { return goes_on_ != GoesOn::with_none; }
  bool goes_on_with(const LaneState* lane) const {
    return goes_on_ == GoesOn::with_any || (goes_on_ == GoesOn::with_ops_of_lane && lane == lane_);
  }
  /// Whether a thread that chooses its next op must stop doing so, because ops of positive priority are ready, or
  /// because too many threads run ops.
  bool wants_thread_back() const { return counts_.want_thread_back(); }
  /// Whether there may be ready ops that no thread has taken up.
  virtual bool work_in_sight() const { return true; }
  /// Called when a thread has run the most ops in a row: other ready ops come first now.
  virtual void end_row() {}
  /// An op on this thread starts to wait: its slot is free until unblock(). Throws Error if no thread would be left to
  /// run the ops that it waits for.
  virtual void block() = 0;
  /// Called between block() and unblock() for a wait that was given up. If an op is ready for the free slot, it returns
  /// once a thread has taken the op, or after a moment. The wait's limit may be shorter than the time that a thread
  /// needs to wake up.
  virtual void let_others_in() {}
  /// For a thread whose op waits and has a slot: takes a ready op for the caller to run on that slot. Null if none is
  /// found soon, or if other ops come first.
  virtual OpRecord* take_wanted(const Wanted& wanted) = 0;
  static constexpr std::size_t most_looks = 4096;  ///< the most ops inspected by a search that ends "soon"
  /// Whether another thread would be needed if a thread left its slot to others, although many threads exist already.
  virtual bool lacks_threads() const = 0;
  /// The number of threads that are started for waits without asking lacks_threads().
  static constexpr int few_spares = 8;
  /// The wait has ended: takes the slot back. If callers run ops, waits for the turn where `patience` says so.
  virtual void unblock(Patience patience) = 0;
  /// Whether another thread may take the slot back for this one, by unblock_other().
  virtual bool may_unblock_other() const = 0;
  virtual void unblock_other() = 0;

  /// Runs a loop of `op`, which has one of these slots and whose frame is the innermost of this thread. Threads that
  /// have no op to run help, if there are any.
  virtual void run_loop(const Running& op, const PieceLoop& loop) { Loops::run_alone(op, loop); }

 protected:
  SlotCounts counts_;

 private:
  const GoesOn goes_on_;
  const LaneState* const lane_;
};

/// Runs a ready op on one of these slots.
using RunOp = std::function<void(OpRecord&, Slots&)>;

}  // namespace windrow
