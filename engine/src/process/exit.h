// What engines do when the process exits; see windrow/engine/internal/process_exit.h.
//
// Static objects are destroyed in the reverse order of their making, and functions given to atexit() run in that order
// among them. Libraries make static objects when they are first used, on a thread of an engine, so after a static
// engine was made; they would be destroyed before it. Thread-local objects of the exiting thread are destroyed before
// all of these.
#pragma once

namespace windrow {

/// To be called by threads of engines, and by the thread that makes one. If it is the main thread, engines finish what
/// is pending when it exits; if the thread exits inside an op, engines rest.
void watch_exit_of_this_thread() noexcept;

/// Whether the process exits, and engines rest.
bool engines_rest() noexcept;
/// Returns on the thread that exits only. To be called by threads that are about to begin an op of an engine that
/// rests.
void stay_unless_exiting() noexcept;

}  // namespace windrow
