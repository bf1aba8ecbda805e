#include "windrow/engine/internal/plug_in.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace windrow {
namespace {

namespace fs = std::filesystem;

/// Where the library may be, in this order. WINDROW_LIBRARIES: the folder of libraries in an installed tree, such as
/// lib.
std::vector<std::string> places(const PlugIn& what) {
  if (const char* const set = std::getenv(what.variable); set != nullptr && *set != '\0') return {set};
  std::vector<std::string> all;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& place : {program / what.file, program / ".." / WINDROW_LIBRARIES / "windrow" / what.file}) {
    if (!program.empty() && fs::exists(place, error)) all.push_back(place.string());
  }
  all.emplace_back(what.file);
  return all;
}

}  // namespace

OpenedPlugIn open_plug_in(const PlugIn& what) {
  void* library = nullptr;
  std::string reason, opened;
  for (const std::string& place : places(what)) {
    opened = place;
    if ((library = ::dlopen(place.c_str(), RTLD_NOW | (what.global ? RTLD_GLOBAL : RTLD_LOCAL))) != nullptr) break;
    if (reason.empty()) reason = ::dlerror();
  }
  if (library == nullptr) {
    return {.error = what.purpose + (": " + reason + "; expected that of ") + what.needs +
                     ", beside the program, in its rpath, or where " + what.variable + " says"};
  }
  const auto get = reinterpret_cast<const void* (*)()>(::dlsym(library, what.function));
  if (get == nullptr) return {.error = opened + " is no plug-in of Windrow; expected " + what.file};
  const void* const table = get();
  const int version = *static_cast<const int*>(table);
  if (version == what.version) return {.table = table};
  return {.error = opened + " is of version " + std::to_string(version) + "; expected version " +
                   std::to_string(what.version) + ", of the same build as the program"};
}

}  // namespace windrow
