// Memory of one thing alone: measured in a process of its own.
#pragma once

#include <functional>

namespace windrow::perf {

/// What `measure` returns in a child of this process, which ends then. Call it while the process has one thread: a
/// child has no other. Throws Error with the text of what it throws there, or if the child is killed.
double in_child(const std::function<double()>& measure);

/// Resident memory of this process now, and the most so far, in bytes; not a number where it cannot be told.
double resident_bytes();
double peak_resident_bytes();

}  // namespace windrow::perf
