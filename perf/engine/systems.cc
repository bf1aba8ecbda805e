#include "systems.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "windrow/engine/error.h"

namespace windrow::perf {
namespace {

const SystemKind* const kinds[] = {&windrow_system,
                                   &windrow_captures_system,
                                   &windrow_per_device_system,
                                   &windrow_values_system,
                                   &windrow_pointers_system,
                                   &openmp_system,
                                   &tbb_system,
                                   &tbb_graph_system,
                                   &taskflow_system,
                                   &taskflow_graph_system,
                                   &starpu_system};

const SystemKind& kind_of(const std::string& name) {
  const auto* found =
      std::find_if(std::begin(kinds), std::end(kinds), [&](const SystemKind* kind) { return name == kind->name; });
  if (found == std::end(kinds)) {
    throw MisuseError("unknown system '" + name + "'; expected a name that --systems accepts");
  }
  if ((*found)->make == nullptr) {
    throw MisuseError("system '" + name + "' is not in this build; expected WINDROW_PEERS to name it, as in cmake " +
                      "--preset release -DWINDROW_PEERS=" + name);
  }
  return **found;
}

}  // namespace

std::vector<std::string> system_names() {
  std::vector<std::string> names;
  for (const SystemKind* kind : kinds) names.emplace_back(kind->name);
  return names;
}

std::vector<std::string> built_system_names() {
  std::vector<std::string> names;
  for (const SystemKind* kind : kinds) {
    if (kind->make != nullptr) names.emplace_back(kind->name);
  }
  return names;
}

bool takes(const std::string& system, const Pattern& pattern) {
  const SystemKind::Takes takes = kind_of(system).takes;
  return takes == SystemKind::Takes::all_patterns ||
         pattern.replayed == (takes == SystemKind::Takes::replayed_patterns);
}

void refuse(const std::string& system, const Pattern& pattern) {
  const bool replays = kind_of(system).takes == SystemKind::Takes::replayed_patterns;
  throw MisuseError("system '" + system + "' cannot run pattern " + pattern.name + ", it only " +
                    (replays ? "replays graphs" : "pushes ops") + "; expected pattern " +
                    (replays ? "FA or FD" : "A to E"));
}

bool holds_a_backlog(const std::string& system) { return kind_of(system).holds == SystemKind::Holds::a_backlog; }

void settle_environment(char** arguments) {
  bool complete = true;
  for (const SystemKind* kind : kinds) {
    const Setting& needs = kind->needs;
    if (needs.name == nullptr || std::getenv(needs.name) != nullptr) continue;
    complete = false;
    if (setenv(needs.name, needs.value, 0) != 0) return;
  }
  if (!complete) execv("/proc/self/exe", arguments);
}

std::unique_ptr<System> make_system(const std::string& name, const Pattern& pattern, const SystemOptions& options) {
  if (!takes(name, pattern)) refuse(name, pattern);
  return kind_of(name).make(pattern, options);
}

}  // namespace windrow::perf
