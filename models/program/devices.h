// The devices of the programs, by name; and the command that lists them.
#pragma once

#include <functional>
#include <string>

#include "flags.h"
#include "windrow/cuda/device.h"

namespace windrow::program {

/// "cpu", or "cuda:" with a number.
Check device_name();

/// What the flags of a command say about its device, as their checks accept it.
struct DeviceFlags {
  std::string device = "cpu";
  std::string precision = "float32", levels = "automatic";  ///< names of cuda::Precision and cuda::Levels
  bool graphs = false;
  std::size_t memory_limit = 0;  ///< in bytes; 0: none
};
/// Adds --memory-limit.
void add_memory_flag(CLI::App& command, DeviceFlags& to);
/// Adds --device and --precision.
void add_device_flags(CLI::App& command, DeviceFlags& to);
/// Adds --levels and --graphs.
void add_levels_flags(CLI::App& command, DeviceFlags& to);
/// Throws MisuseError or Error if the device cannot be used, or not so.
Device open_device(Engine& engine, const DeviceFlags& flags);
/// Adds the command `devices`. Returns what it does.
std::function<void()> add_devices(CLI::App& app);

}  // namespace windrow::program
