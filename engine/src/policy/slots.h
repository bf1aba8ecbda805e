// The slots of a running policy: how many ops run at a time, and how a wait inside an op changes that.
#pragma once

#include <chrono>
#include <functional>

#include "policy/loops.h"

namespace windrow {

class OpRecord;
struct Running;

/// More threads than a process can have. Options that name more count as this number, so that sums do not overflow.
inline constexpr int most_threads = 1 << 20;

/// Whether a waiting thread, which looks for ops to run meanwhile, may run this op. The op is ready, and no other
/// thread can take it during the call. Needs no memory and throws nothing.
using Wanted = std::function<bool(OpRecord&)>;

class Slots {
 public:
  /// The longest time for which a wait that was given up leaves its slot free.
  static constexpr std::chrono::milliseconds longest_courtesy{10};

  enum class Patience {
    wait_for_turn,     ///< wait until no op runs
    give_up_if_taken,  ///< do not wait: other threads will run the ready ops
  };

  virtual ~Slots() = default;
  /// An op on this thread starts to wait: its slot is free until unblock(). Throws Error if no thread would be left to
  /// run the ops that it waits for.
  virtual void block() = 0;
  /// Called between block() and unblock() for a wait that was given up: if an op is ready for the free slot, returns
  /// once a thread has taken it, or after a moment. The wait's limit may be shorter than the time a thread needs to
  /// wake up.
  virtual void let_others_in() {}
  /// For a thread whose op has a slot and waits: takes a ready op that the caller runs on that slot meanwhile. Null if
  /// none is found soon, or if other ops come first.
  virtual OpRecord* take_wanted(const Wanted& wanted) = 0;
  static constexpr std::size_t most_looks = 4096;  ///< the most ops inspected by a search that ends "soon"
  /// Whether a thread that leaves its slot to others would require one more thread, although many exist already.
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
};

/// Runs a ready op on one of these slots.
using RunOp = std::function<void(OpRecord&, Slots&)>;

}  // namespace windrow
