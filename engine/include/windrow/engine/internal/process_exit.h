// Libraries whose static objects ops use, and the end of the process.
#pragma once
#include "windrow/engine/internal/requirements.h"

namespace windrow {

/// When the process exits, engines come to rest before the static objects are destroyed that exist now: they finish
/// what is pending, as long as ops finish at least every 10 s, and then run nothing more. To be called by code that ops
/// run, after it has made a library create static objects that later calls use. Static engines may then run such code
/// until the program ends.
///
/// It concerns std::exit and a return from main, on any thread, also inside an op, which then never finishes.
/// std::quick_exit and std::_Exit destroy no static objects. In a library that is closed by dlclose, it concerns that
/// library. Takes 32 bytes for each call, so repeated calls should be few. Threads: any.
void rest_before_statics_end() noexcept;

}  // namespace windrow
