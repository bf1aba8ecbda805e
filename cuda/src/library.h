// The plug-in library; see plugin/plugin.h.
#pragma once

#include <string>

#include "plugin/plugin.h"

namespace windrow::cuda {

/// Opens the plug-in on the first call. Throws MisuseError, always with the same text, if the plug-in is missing, has
/// another version, or finds no usable driver. Threads: any.
const Plugin& plugin();

/// The number of devices. Throws MisuseError in the cases of plugin(), and if there is no device.
int count_devices();

/// Such as "cuda:0".
std::string device_name(int number);

}  // namespace windrow::cuda
