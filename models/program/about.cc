#include "about.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <thread>

#include "windrow/engine/engine.h"

namespace windrow::program {
namespace {

/// The rest of the first line that begins so, without blanks, quotes and what separates it; empty if there is none.
std::string line_after(const char* file, const std::string& begin) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(begin)) continue;
    const std::size_t first = line.find_first_not_of(" \t:=\"", begin.size());
    if (first == std::string::npos) return {};
    return line.substr(first, line.find_last_not_of(" \t\"") + 1 - first);
  }
  return {};
}

std::string system_text() {
  utsname system{};
  const std::string name = line_after("/etc/os-release", "PRETTY_NAME");
  if (uname(&system) != 0) return name;
  return (name.empty() ? "" : name + ", ") + system.sysname + " " + system.release;
}

std::string compiler() {
#ifdef __clang__
  return std::string("clang ") + __clang_version__;
#else
  return std::string("GCC ") + __VERSION__;
#endif
}

}  // namespace

std::string version() { return WINDROW_VERSION; }
std::string version_text() { return version() + ", commit " + source_commit(); }

std::vector<Fact> about_machine() {
  std::vector<Fact> facts;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) facts.push_back({name, value});
  };
  add("processor", line_after("/proc/cpuinfo", "model name"));
  add("hardware threads", std::to_string(std::thread::hardware_concurrency()) + "; this process may use " +
                              std::to_string(default_workers()));
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) add("memory", bytes_text(std::int64_t{pages} * page));
  add("system", system_text());
  add("compiler", compiler());
  add("windrow", version_text());
  return facts;
}

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 40> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &parts));
  return text.data();
}

std::int64_t peak_process_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

std::string bytes_text(std::int64_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text.data();
}

std::string seconds_text(double seconds) {
  std::array<char, 60> text{};
  const auto whole = static_cast<long>(std::lround(seconds));
  if (seconds < 60) {
    std::snprintf(text.data(), text.size(), seconds < 10 ? "%.1f s" : "%.0f s", seconds);
  } else if (whole < 3600) {
    std::snprintf(text.data(), text.size(), "%ld min %ld s", whole / 60, whole % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%ld h %ld min", whole / 3600, whole / 60 % 60);
  }
  return text.data();
}

}  // namespace windrow::program
