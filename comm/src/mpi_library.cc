#include "mpi_library.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "windrow/engine/error.h"

namespace windrow::comm {
namespace {

namespace fs = std::filesystem;
constexpr const char* file_name = "windrow_mpi.so";

/// Where the plug-in may be, in this order.
std::vector<std::string> places() {
  if (const char* const set = std::getenv("WINDROW_MPI_PLUGIN"); set != nullptr && *set != '\0') return {set};
  std::vector<std::string> all;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& place : {program / file_name, program / ".." / "lib" / "windrow" / file_name}) {
    if (!program.empty() && fs::exists(place, error)) all.push_back(place.string());
  }
  all.emplace_back(file_name);
  return all;
}

struct Opened {
  const MpiCalls* calls = nullptr;
  std::string error = {};  // if there is no plug-in
};

/// The library is never closed: MPI lives as long as the process. Its own plug-ins look for its symbols, so these are
/// global.
Opened open() {
  void* library = nullptr;
  std::string reason, opened;
  for (const std::string& place : places()) {
    opened = place;
    if ((library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL)) != nullptr) break;
    if (reason.empty()) reason = ::dlerror();
  }
  if (library == nullptr) {
    return {.error = "MPI cannot be used: " + reason +
                     "; expected the plug-in of a build with an MPI library (package "
                     "libopenmpi-dev) there or where WINDROW_MPI_PLUGIN says"};
  }
  const auto get = reinterpret_cast<decltype(&windrow_mpi_calls)>(::dlsym(library, "windrow_mpi_calls"));
  if (get == nullptr) return {.error = opened + " is no plug-in of Windrow; expected " + file_name};
  const MpiCalls* const calls = get();
  if (calls->version != MpiCalls::current_version) {
    return {.error = opened + " is of version " + std::to_string(calls->version) + "; expected version " +
                     std::to_string(MpiCalls::current_version) + ", of the same build as the program"};
  }
  return {calls};
}

}  // namespace

const MpiCalls& mpi_calls() {
  static const Opened opened = open();
  if (opened.calls == nullptr) throw MisuseError(opened.error);
  return *opened.calls;
}

std::string mpi_text(const MpiCalls& calls, int error) {
  std::array<char, 512> text{};
  calls.text(error, text.data(), text.size());
  return text.data();
}

}  // namespace windrow::comm
