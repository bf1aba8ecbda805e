#include "windrow/engine/internal/system_limits.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "windrow/engine/engine.h"

namespace windrow {
namespace {

int allowed_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// The words of the first line of a file; none if it cannot be read.
std::vector<std::string> words_of(const std::string& file) {
  std::ifstream in(file);
  std::string first, word;
  std::getline(in, first);
  std::istringstream words(first);
  std::vector<std::string> all;
  while (words >> word) all.push_back(word);
  return all;
}

/// None for "max" and other text that is not a whole number.
std::optional<std::int64_t> number_of(const std::string& word) {
  std::int64_t number = 0;
  const char* const end = word.data() + word.size();
  const auto [parsed_to, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc() || parsed_to != end) return std::nullopt;
  return number;
}

bool has_word(const std::string& list, std::string_view word) {
  std::istringstream words(list);
  for (std::string each; std::getline(words, each, ',');) {
    if (each == word) return true;
  }
  return false;
}

/// The folders of the process's group for one resource, and of the groups around it; of version 2 if `controller` is
/// empty. Groups are mounted where systemd and containers mount them.
std::vector<std::string> folders_of(const std::string& root, std::string_view controller) {
  std::vector<std::string> folders;
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string entry; std::getline(in, entry);) {
    const std::size_t first = entry.find(':'), second = entry.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = entry.substr(first + 1, second - first - 1);
    if (controller.empty() ? !controllers.empty() : !has_word(controllers, controller)) continue;
    const std::string mounted = root + "/sys/fs/cgroup" + (controllers.empty() ? "" : "/" + controllers);
    std::string inside = entry.substr(second + 1);
    // In a container, the path may be the one outside of it, and only its beginning is mounted.
    std::error_code error;
    while (!inside.empty() && !std::filesystem::exists(mounted + inside, error)) inside.erase(0, inside.find('/', 1));
    for (; inside.size() > 1; inside.erase(std::min(inside.rfind('/'), inside.size() - 1))) {
      folders.push_back(mounted + inside);
    }
    folders.push_back(mounted);
  }
  return folders;
}

std::optional<double> cpus_of(const std::string& folder, int version, std::string& file) {
  std::vector<std::string> words;
  if (version == 2) {
    words = words_of(file = folder + "/cpu.max");
  } else {
    words = words_of(file = folder + "/cpu.cfs_quota_us");
    const auto period = words_of(folder + "/cpu.cfs_period_us");
    words.insert(words.end(), period.begin(), period.end());
  }
  if (words.size() != 2) return std::nullopt;
  const auto quota = number_of(words[0]), period = number_of(words[1]);
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<std::uint64_t> memory_of(const std::string& folder, int version, std::string& file) {
  const auto words = words_of(file = folder + (version == 2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto bytes = words.empty() ? std::nullopt : number_of(words[0]);
  constexpr std::int64_t boundless = std::int64_t{1} << 60;  // version 1 states the largest number of whole pages
  if (!bytes || *bytes <= 0 || *bytes >= boundless) return std::nullopt;
  return static_cast<std::uint64_t>(*bytes);
}

/// The smallest limit that `read` finds in the process's group and those around it.
template <class T, class Read>
void find_limit(const std::string& root, std::string_view controller, std::optional<SystemLimits::OfGroup<T>>& limit,
                Read&& read) {
  for (const std::string_view of : {controller, std::string_view()}) {
    for (const std::string& folder : folders_of(root, of)) {
      std::string file;
      const std::optional<T> here = read(folder, of.empty() ? 2 : 1, file);
      if (here && (!limit || *here < limit->limit)) limit = SystemLimits::OfGroup<T>{*here, file.substr(root.size())};
    }
  }
}

}  // namespace

int SystemLimits::threads() const {
  if (!cpus) return cores;
  return std::max(1, static_cast<int>(std::min<double>(cores, std::ceil(cpus->limit))));
}

SystemLimits system_limits(const std::string& root) {
  const std::string folder = root == "/" ? std::string() : root;
  SystemLimits limits{.cores = allowed_cores()};
  find_limit(folder, "cpu", limits.cpus, cpus_of);
  find_limit(folder, "memory", limits.memory, memory_of);
  return limits;
}

int default_workers() {
  // The affinity may change, and reading it is cheap. A quota of more CPUs than cores is no limit.
  static const double cpus = [] {
    const auto found = system_limits().cpus;
    return found ? found->limit : 1e9;
  }();
  return SystemLimits{.cores = allowed_cores(), .cpus = SystemLimits::OfGroup<double>{cpus, {}}}.threads();
}

}  // namespace windrow
