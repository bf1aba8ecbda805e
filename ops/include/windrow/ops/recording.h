// What code that pushes ops must know of recordings, so that the body of a Static may call it; see static.h.
#pragma once
#include "windrow/engine/requirements.h"

#include <memory>
#include <string>
#include <vector>

#include "windrow/engine/engine.h"
#include "windrow/memory/buffer.h"

namespace windrow {

class Recorder;

/// What a recording must know of an op besides its accesses.
struct ReplayedBuffers {
  /// The buffers behind the accesses. A recording keeps them alive, and may move those that nobody else keeps.
  std::vector<std::shared_ptr<Buffer>> all = {};
  /// The variable of a buffer that the op mutates since it overwrites a part of it; empty if there is none. If no
  /// earlier op of the recording writes the buffer, replays clear it before this op.
  Var overwritten_in_part = {};
  /// The variables of buffers that the op reads, element by element, before it overwrites the buffer of `result` at the
  /// same places: the two may be the same bytes if nothing reads the former later.
  std::vector<Var> in_place = {};
  Var result = {};
  /// Whether the function does nothing but issue work on its lane, and the same work each time, so that lanes may
  /// capture it: captured_work.h.
  bool may_be_captured = false;
};

/// Pushes an op or, in the body of a Static, records it. The op may be run again: its function does, each time, what
/// pushing the op again would do. What changes from time to time must be behind the variables, and not in the captures.
/// Throws as Engine::push does.
void push_replayable(Engine& engine, OpFunction function, AccessList accesses, const PushOptions& options,
                     const ReplayedBuffers& buffers);

/// While an Unrecorded exists, its thread pushes as if it were not in the body of a Static: once, and before what the
/// body records. For what a program does when it runs for the first time, such as giving state its initial value.
class Unrecorded {
 public:
  Unrecorded();
  ~Unrecorded();
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;

 private:
  Recorder* const recorder_;
};

/// Throws MisuseError in the body of a Static: `what`, such as "keep_gradients()", changes the program, and not only
/// tensors, so replays would not do it.
void refuse_in_recording(const std::string& what);

}  // namespace windrow
