// The plug-in library; see plugin/plugin.h.
#pragma once

#include <string>

#include "plugin/plugin.h"

namespace windrow::cuda {

/// Opens the plug-in on the first call. Throws MisuseError, always with the same text, if it cannot be used: it is not
/// there or does not fit, or there is no driver that it can use. Threads: any.
const Plugin& plugin();

/// The number of devices. Throws MisuseError as plugin(), and if there is none.
int count_devices();

/// "cuda:0".
std::string device_name(int number);

}  // namespace windrow::cuda
