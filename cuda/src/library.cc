#include "library.h"

#include <atomic>

#include "windrow/engine/internal/plug_in.h"

namespace windrow::cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Why no device can be used; empty if some can.
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
  static const OpenedPlugIn opened = open_plug_in({.file = "windrow_cuda.so",
                                                   .variable = "WINDROW_CUDA_PLUGIN",
                                                   .function = "windrow_cuda_plugin",
                                                   .version = Plugin::current_version,
                                                   .purpose = "CUDA cannot be used",
                                                   .needs = "a build with nvcc, and cuBLAS"});
  if (opened.table == nullptr) throw MisuseError(opened.error);
  return *static_cast<const Plugin*>(opened.table);
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
