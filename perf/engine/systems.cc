#include "systems.h"

#include "windrow/engine/error.h"

namespace windrow::perf {
namespace {

struct Entry {
  const char* name;
  std::unique_ptr<System> (*make)(const Pattern& pattern, int workers);
};

constexpr Entry entries[] = {{"windrow", make_windrow}, {"openmp", make_openmp}, {"tbb", make_tbb}};

}  // namespace

std::vector<std::string> system_names() {
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<System> make_system(const std::string& name, const Pattern& pattern, int workers) {
  for (const Entry& entry : entries) {
    if (name != entry.name) continue;
    auto system = entry.make(pattern, workers);
    if (system != nullptr) return system;
    throw MisuseError("system '" + name + "' is not in this build; expected WINDROW_PEERS to name it, as in cmake " +
                      "--preset release -DWINDROW_PEERS=" + name);
  }
  throw MisuseError("system '" + name + "' is unknown; expected one of system_names()");
}

}  // namespace windrow::perf
