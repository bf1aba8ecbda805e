// What engines do when the process exits; see windrow/engine/internal/process_exit.h.
//
// Static objects are destroyed, and functions given to atexit() run, in the reverse order of their creation. Libraries
// create static objects at their first use on a thread of an engine. A static engine is older, so they would be
// destroyed before it. Thread-local objects of the exiting thread are destroyed before all of these.
#pragma once

namespace windrow {

/// Called by threads of engines, and by a thread that makes an engine. When the main thread exits, engines finish
/// pending ops; if a thread exits inside an op, engines rest.
void watch_exit_of_this_thread() noexcept;

/// Whether the process exits, and engines rest.
bool engines_rest() noexcept;
/// Returns only on the thread that exits the process. Called by threads that are about to begin an op of an engine that
/// rests.
void stay_unless_exiting() noexcept;

}  // namespace windrow
