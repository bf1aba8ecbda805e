// The slots of a running policy: how many ops run at a time, and what a wait inside an op does to that.
#pragma once

#include <chrono>
#include <functional>

#include "policy/loops.h"

namespace windrow {

class OpRecord;
struct Running;

/// Whether a thread that waits, and looks for ops to run meanwhile, may run this one, which is ready and now its own.
/// Needs no memory and throws nothing.
using Wanted = std::function<bool(OpRecord&)>;

class Slots {
 public:
  /// A wait that was given up leaves a slot free for so long at most.
  static constexpr std::chrono::milliseconds longest_courtesy{10};

  enum class Patience {
    wait_for_turn,     ///< until no op runs
    give_up_if_taken,  ///< others will run what is ready
  };

  virtual ~Slots() = default;
  /// An op on this thread starts to wait: its slot is free until unblock(). Throws Error if nobody would be left to run
  /// what it waits for.
  virtual void block() = 0;
  /// In between: where an op is ready for the free slot, returns once it has been taken up, or after a moment. For a
  /// wait that was given up: its limit may be shorter than it takes a thread to wake.
  virtual void let_others_in() {}
  /// For a thread whose op, which has a slot, waits: a ready op to run on that slot meanwhile; null where none is found
  /// soon, or others come first. The caller runs it.
  virtual OpRecord* take_wanted(const Wanted& wanted) = 0;
  static constexpr std::size_t most_looks = 4096;  ///< what is found soon is among so many ops
  /// Whether, to leave its slot to others, one more thread would have to be started beside many.
  virtual bool lacks_threads() const = 0;
  /// So many threads are started for waits without asking lacks_threads().
  static constexpr int few_spares = 8;
  /// Where callers run, this waits for the turn if the patience says so.
  virtual void unblock(Patience patience) = 0;
  /// Whether another thread may do that for this one, which it does by unblock_other().
  virtual bool may_unblock_other() const = 0;
  virtual void unblock_other() = 0;

  /// Runs a loop of the op, which takes one of these slots and whose frame is the innermost of this thread. Threads
  /// that have no op to run help, where there are some.
  virtual void run_loop(const Running& op, const PieceLoop& loop) { Loops::run_alone(op, loop); }
};

/// Runs a ready op, which takes one of these slots.
using RunOp = std::function<void(OpRecord&, Slots&)>;

}  // namespace windrow
