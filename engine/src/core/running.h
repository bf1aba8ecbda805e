// Which ops run on this thread.
#pragma once

#include "core/op.h"

namespace windrow {

class Slots;

/// One op whose function runs on this thread, or whose captures are being destroyed. Frames form a stack, since an op
/// of one engine may push to a serial engine. Owner: the thread.
struct Running {
  Running(Core& engine, OpRecord& running, Slots* taken)
      : core(&engine), op(&running), slots(taken), outer(innermost_) {
    innermost_ = this;
  }
  /// A piece of a loop of the op runs on this thread: the op's own, or one that helps.
  enum class Piece {};
  Running(const Running& of, Piece)
      : core(of.core), op(of.op), slots(of.slots), outer(innermost_), in_piece(true) {
    innermost_ = this;
  }
  ~Running() { innermost_ = outer; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  Core* const core;
  OpRecord* const op;
  Slots* const slots;  ///< whose slot the op takes; null outside the engine's threads
  Running* const outer;
  const bool in_piece = false;

  /// The innermost frame of this thread, or null.
  static Running* innermost() { return innermost_; }
  /// The innermost frame of those that wait below what this thread runs meanwhile; null if there is none. From there on
  /// outwards all have left word of their waits, so that a wait above it speaks only for the frames above.
  static Running* floor() { return floor_; }

  /// While it lives, the ops that run on this thread wait, and it runs others above them.
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

}  // namespace windrow
