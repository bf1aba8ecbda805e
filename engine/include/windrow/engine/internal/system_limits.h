// The resources that the system lets this process use: cores, and the limits of its container.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <optional>
#include <string>

namespace windrow {

/// A value.
struct SystemLimits {
  /// A limit of a control group (cgroup) of Linux, version 1 or 2: the smallest among the process's group and those
  /// around it.
  template <class T>
  struct OfGroup {
    T limit;
    std::string file;  ///< the file that states the limit
  };

  int cores = 1;  ///< cores on which the process may run, by its affinity; at least 1
  std::optional<OfGroup<double>> cpus = {};
  std::optional<OfGroup<std::uint64_t>> memory = {};  ///< in bytes

  /// How many threads can run at the same time: `cores`, or `cpus` rounded up if that is less. At least 1.
  int threads() const;
};

/// Reads the limits now. Files are searched for under `root`, which tests change. A file that cannot be read gives no
/// limit.
SystemLimits system_limits(const std::string& root = "/");

}  // namespace windrow
