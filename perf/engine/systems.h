// The list of all systems. If WINDROW_PEERS does not name a peer, only its name is linked; see perf/CMakeLists.txt.
#pragma once

#include "system.h"

namespace windrow::perf {

/// An environment variable that a system reads when the program is loaded, and the value with which the system performs
/// best. A value that the caller has set is kept. No variable if `name` is null.
struct Setting {
  const char* name = nullptr;
  const char* value = nullptr;
};

/// The description of a system, defined in the system's own file.
struct SystemKind {
  enum class Takes { all_patterns, pushed_patterns, replayed_patterns };
  /// Whether the system can hold ops back until all are pushed; see Job::held.
  enum class Holds { nothing, a_backlog };

  const char* name;
  std::unique_ptr<System> (*make)(const Pattern& pattern, const SystemOptions& options) = nullptr;  ///< null: not built
  Takes takes = Takes::all_patterns;
  Holds holds = Holds::nothing;
  Setting needs = {};
};

extern const SystemKind windrow_system, windrow_captures_system, windrow_per_device_system, windrow_values_system,
    windrow_pointers_system, openmp_system, tbb_system, tbb_graph_system, taskflow_system, taskflow_graph_system,
    starpu_system;

/// A factory for SystemKind::make.
template <class Made>
std::unique_ptr<System> make(const Pattern& pattern, const SystemOptions& options) {
  return std::make_unique<Made>(pattern, options);
}

}  // namespace windrow::perf
