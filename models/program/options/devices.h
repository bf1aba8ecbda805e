// The devices of the programs, by name.
#pragma once

#include <string>

#include "program/options/flags.h"
#include "windrow/cuda/device.h"

namespace windrow::program {

/// Whether a name is `kind`, such as "cuda:", and a number of at most four digits.
bool is_device(const std::string& name, const std::string& kind);
/// "cpu", or "cuda:" with a number.
Check device_name();

/// The values of a command's flags about its device.
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
/// Throws MisuseError or Error if the device cannot be used, or not with these flags.
Device open_device(Engine& engine, const DeviceFlags& flags);

}  // namespace windrow::program
