// A scope in which a thread pushes nothing.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include "windrow/engine/engine.h"

namespace windrow {

/// While a PushRefusal exists, pushes, launches, captures and waits by its thread throw MisuseError; the message ends
/// with `why`. It serves code that records a program instead of running it, so that nothing runs unrecorded. Retires
/// are pushed as usual, since an owner may end at any time. Other threads and the engine's own ops are not affected. A
/// parallel loop in the scope runs on this thread alone. The scope also holds in an op of another engine with policy
/// serial, which this thread runs inside a push to that engine.
///
/// The same thread must create and destroy the scope; the engine must outlive it.
class PushRefusal {
 public:
  /// `why` is a string literal, such as "expected ... in the body of ...". Throws MisuseError in a capture of the
  /// thread, inside another refusal, and where the thread is in the middle of a push.
  PushRefusal(Engine& engine, const char* why);
  ~PushRefusal();
  PushRefusal(const PushRefusal&) = delete;
  PushRefusal& operator=(const PushRefusal&) = delete;

  /// True if a push by this thread would throw (refusal) or be recorded (capture) instead of running. For code that
  /// does more than push, and so refuses both.
  static bool refuses_or_captures(Engine& engine);
  [[deprecated("renamed: refuses_or_captures")]] static bool or_capture(Engine& engine) {
    return refuses_or_captures(engine);
  }
  /// Whether the scope applies to the calling thread, which created it. It does not apply inside an op that runs
  /// meanwhile, such as one that a retire has made ready with policy serial.
  bool in_force() const;

 private:
  Core& core_;
  const void* const frame_;  ///< of the op in which the scope was created; null outside ops
};

}  // namespace windrow
