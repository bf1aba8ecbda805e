// Memory measurements, each in a process of its own.
#pragma once

#include <functional>

namespace windrow::perf {

/// Calls `measure` in a child process, which then exits, and returns the result. Call it while the process has one
/// thread, because the child has only the thread that forked. Throws Error if `measure` throws, with the same text, or
/// if the child is killed.
double in_child(const std::function<double()>& measure);

/// The current and the peak resident memory of this process, in bytes; NaN if it cannot be determined.
double resident_bytes();
double peak_resident_bytes();

}  // namespace windrow::perf
