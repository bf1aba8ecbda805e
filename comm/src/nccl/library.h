// Opening the plug-in library for NCCL.
#pragma once

#include <string>

#include "plugin/nccl_calls.h"

namespace windrow::comm {

/// The table of the plug-in, which is opened by the first call and stays open. Throws MisuseError if there is none.
const NcclCalls& nccl_calls();
/// Empty, or why there is none.
std::string why_no_nccl();

/// The text for an error of one of these functions.
std::string nccl_text(const NcclCalls& calls, int error);

}  // namespace windrow::comm
