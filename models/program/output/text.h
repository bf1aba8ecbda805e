// Texts of numbers, sizes and lists, as the programs print them, and the version of the program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "windrow/models/workload.h"

namespace windrow::program {

/// The text that printf would print.
[[gnu::format(printf, 1, 2)]] std::string formatted(const char* format, ...);
/// "'text'".
std::string in_quotes(const std::string& text);
std::string joined(const std::vector<std::string>& words, const std::string& between = ", ");
/// The text as one line, even if it contains line breaks.
std::string in_one_line(std::string text);
/// "8,544" for 8544.
std::string grouped(std::size_t number);
/// "1 tree", "8,544 trees".
std::string counted(std::size_t number, const std::string& what);
/// "4.2 MiB".
std::string bytes_text(std::int64_t bytes);
/// "1.5 s", "2 min 3 s".
std::string seconds_text(double seconds);
/// "45.0 %", or "12.3" for a metric that is no fraction; at most 10 characters.
std::string metric_text(const Metric& metric);
/// At most 11 characters for any loss.
std::string loss_text(double loss);

/// Such as "0.1.0".
std::string version();
/// The commit that was checked out when the program was built, or "unknown".
std::string source_commit();
/// "0.1.0, commit 0123456789ab".
std::string version_text();

}  // namespace windrow::program
