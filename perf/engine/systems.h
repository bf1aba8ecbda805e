// The systems there are. Of a peer that WINDROW_PEERS does not name only the name is linked; see perf/CMakeLists.txt.
#pragma once

#include "system.h"

namespace windrow::perf {

/// A variable of the environment that a system reads when the program is loaded, and the value at which it is at its
/// best; what the caller has set stays. None without a name.
struct Setting {
  const char* name = nullptr;
  const char* value = nullptr;
};

/// One of them, as its file describes it.
struct SystemKind {
  enum class Takes { all_patterns, pushed_patterns, replayed_patterns };
  /// Whether it can hold ops back until all are pushed; see Job::held.
  enum class Holds { nothing, a_backlog };

  const char* name;
  std::unique_ptr<System> (*make)(const Pattern& pattern, const SystemOptions& options) = nullptr;  ///< null: not built
  Takes takes = Takes::all_patterns;
  Holds holds = Holds::nothing;
  Setting needs = {};
};

extern const SystemKind windrow_system, windrow_bulk_system, windrow_per_device_system, windrow_async_system,
    openmp_system, tbb_system, tbb_graph_system, taskflow_system, taskflow_graph_system, starpu_system;

/// To be given to SystemKind::make.
template <class Made>
std::unique_ptr<System> make(const Pattern& pattern, const SystemOptions& options) {
  return std::make_unique<Made>(pattern, options);
}

}  // namespace windrow::perf
