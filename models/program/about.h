// This program, and the machine that it runs on.
#pragma once

#include <cstdint>
#include <vector>

#include "chart.h"

namespace windrow::program {

/// Such as "0.1.0".
std::string version();
/// The commit that was checked out when the program was built, or "unknown".
std::string source_commit();
/// "0.1.0, commit 0123456789ab".
std::string version_text();
/// Processor, cores, memory, operating system, compiler, version and commit; what is not known is left out.
std::vector<Fact> about_machine();
/// The time now, as "2026-03-14 15:09 UTC".
std::string time_now();
/// The largest resident memory of this process so far.
std::int64_t peak_process_bytes();
/// "4.2 MiB".
std::string bytes_text(std::int64_t bytes);
/// "1.5 s", "2 min 3 s".
std::string seconds_text(double seconds);

}  // namespace windrow::program
