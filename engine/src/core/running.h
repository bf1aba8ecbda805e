// The stack of ops that run on a thread.
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
  /// For a piece of a loop of the op `of`. The piece runs on this thread, which is the op's own thread or a helper.
  enum class Piece {};
  Running(const Running& of, Piece) : core(of.core), op(of.op), slots(of.slots), outer(innermost_), in_piece(true) {
    innermost_ = this;
  }
  ~Running() { innermost_ = outer; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  Core* const core;
  OpRecord* const op;
  Slots* const slots;  ///< in which the op occupies a slot; null outside the engine's threads
  Running* const outer;
  const bool in_piece = false;

  /// The innermost frame of this thread, or null.
  static Running* innermost() { return innermost_; }
  /// The innermost frame of this thread that waits below the ops which the thread runs meanwhile; null if there is
  /// none. This frame and all outer ones are entered in the wait graph, so a wait above them enters only the frames
  /// above.
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

}  // namespace windrow
