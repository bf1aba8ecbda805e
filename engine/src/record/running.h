// The stack of ops that run on a thread.
#pragma once

#include "record/op.h"

namespace windrow {

class Slots;

/// One op whose function runs on this thread, or whose captures are being destroyed. Frames form a stack, since an op
/// of one engine may push to a serial engine. Owner: the thread.
struct Running {
  Running(Core& engine, OpRecord& running, Slots* taken)
      : core(&engine), op(&running), slots(taken), outer(innermost_) {
    innermost_ = this;
  }
  /// For a piece of a loop of the op `of`. The piece runs on this thread, which is the op's own thread or a helper.
  enum class Piece {};
  Running(const Running& of, Piece)
      : core(of.core),
        op(of.op),
        slots(of.slots),
        outer(innermost_),
        in_piece(true),
        again(innermost_ != nullptr && innermost_->op == of.op) {
    innermost_ = this;
  }
  ~Running() { innermost_ = outer; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  Core* const core;
  OpRecord* const op;
  Slots* const slots;  ///< where the op occupies a slot; null outside the engine's threads
  Running* const outer;
  const bool in_piece = false;
  const bool again = false;  ///< the frame below belongs to the same op, and represents it

  /// Whether this thread occupies one of the slots for the frame.
  bool has_slot() const { return slots != nullptr && !again; }
  /// The innermost frame of this thread, or null.
  static Running* innermost() { return innermost_; }
  /// The innermost frame of this thread whose op waits while the thread runs other ops above it; null if there is none.
  /// This frame and all outer ones are entered in the wait graph, so a wait above enters only the frames above.
  static Running* floor() { return floor_; }

  /// During its lifetime, the ops that run on this thread wait, and the thread runs others above them on its stack.
  class Floor {
   public:
    Floor() { floor_ = innermost_; }
    ~Floor() { floor_ = below_; }
    Floor(const Floor&) = delete;
    Floor& operator=(const Floor&) = delete;

   private:
    Running* const below_ = floor_;
  };

 private:
  static inline constinit thread_local Running* innermost_ = nullptr;
  static inline constinit thread_local Running* floor_ = nullptr;
};

/// During its lifetime, the ops on this thread are at Stage::waits_inside. A trace of the ops shows the wait. Does not
/// apply to an op in whose loop this thread only helps, since that op continues on its own thread.
class InsideWait {
 public:
  InsideWait();
  ~InsideWait();
  InsideWait(const InsideWait&) = delete;
  InsideWait& operator=(const InsideWait&) = delete;

 private:
  const Ticks begun_ = now_in_ticks();
};

/// Counts the captures and push refusals, of all engines, in which the calling thread is. They do not apply to other
/// threads, so these must not help in loops of this thread meanwhile.
class OwnThreadOnly {
 public:
  OwnThreadOnly() { begin(); }
  ~OwnThreadOnly() { end(); }
  OwnThreadOnly(const OwnThreadOnly&) = delete;
  OwnThreadOnly& operator=(const OwnThreadOnly&) = delete;

  /// For a scope whose class is public.
  static void begin() { ++count_; }
  static void end() { --count_; }
  static bool here() { return count_ > 0; }

 private:
  static inline constinit thread_local int count_ = 0;
};

}  // namespace windrow
