#include "library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

namespace windrow::cuda {
namespace {

namespace fs = std::filesystem;
constexpr const char* file_name = "windrow_cuda.so";

/// Where the plug-in may be, in this order.
std::vector<std::string> places() {
  if (const char* const set = std::getenv("WINDROW_CUDA_PLUGIN"); set != nullptr && *set != '\0') return {set};
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
  const Plugin* plugin = nullptr;
  std::string error = {};  // if there is no plug-in
};

/// The library is never closed: the CUDA runtime lives as long as the process.
Opened open() {
  const std::vector<std::string> from = places();
  void* library = nullptr;
  std::string reason, opened;
  for (const std::string& place : from) {
    opened = place;
    if ((library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) != nullptr) break;
    if (reason.empty()) reason = ::dlerror();
  }
  if (library == nullptr) {
    const std::string hint =
        "; expected the plug-in of a build with nvcc there or where WINDROW_CUDA_PLUGIN says, and cuBLAS";
    return {.error = "CUDA cannot be used: " + reason + hint};
  }
  const auto get = reinterpret_cast<decltype(&windrow_cuda_plugin)>(::dlsym(library, "windrow_cuda_plugin"));
  if (get == nullptr) return {.error = opened + " is no plug-in of Windrow; expected " + file_name};
  const Plugin* const plugin = get();
  if (plugin->version != Plugin::current_version) {
    return {.error = opened + " is of version " + std::to_string(plugin->version) + "; expected version " +
                     std::to_string(Plugin::current_version) + ", of the same build as the program"};
  }
  return {plugin};
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Why no device can be used, or nothing.
std::string obstacle(const Plugin& cuda, int error) {
  int driver = 0, runtime = 0;
  if (cuda.versions(&driver, &runtime) != success) return "CUDA cannot be used: the driver's version is unknown";
  const std::string expected = "; expected one for CUDA " + std::to_string(runtime / 1000) + ".0 or later";
  if (driver == 0) return "CUDA cannot be used: no NVIDIA driver was found" + expected;
  if (error == driver_too_old) {
    return "CUDA cannot be used: the driver is for CUDA " + version_text(driver) + expected;
  }
  if (error == no_device) return "CUDA cannot be used: the driver finds no device; expected at least one";
  if (error != success) return std::string("CUDA cannot be used: ") + cuda.text(error);
  return "";
}

}  // namespace

const Plugin& plugin() {
  static const Opened opened = open();
  if (opened.plugin == nullptr) throw MisuseError(opened.error);
  return *opened.plugin;
}

int count_devices() {
  const Plugin& cuda = plugin();
  static std::atomic<int> counted{0};  // a call may return the error of a device that was lost since
  int count = 0;
  const int error = cuda.count_devices(&count);
  if (error == success) return counted = count;
  if (error != driver_too_old && error != no_device && counted > 0) return counted;
  if (const std::string text = obstacle(cuda, error); !text.empty()) throw MisuseError(text);
  return 0;
}

std::string device_name(int number) { return "cuda:" + std::to_string(number); }

}  // namespace windrow::cuda
