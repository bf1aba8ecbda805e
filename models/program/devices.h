// The devices of the programs, by name; and the command that lists them.
#pragma once

#include <functional>
#include <string>

#include "flags.h"
#include "windrow/cuda/device.h"

namespace windrow::program {

/// "cpu", or "cuda:" with a number.
Check device_name();
/// The device of a name that device_name() accepts. Throws MisuseError or Error if it cannot be used.
Device open_device(Engine& engine, const std::string& name, const cuda::DeviceOptions& options = {});
/// Adds the command `devices`. Returns what it does.
std::function<void()> add_devices(CLI::App& app);

}  // namespace windrow::program
