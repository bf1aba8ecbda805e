// Makes engines stop before the process destroys static objects that ops use.
#pragma once
#include "windrow/engine/internal/requirements.h"

namespace windrow {

/// When the process exits, engines stop before the static objects that exist now are destroyed: they finish pending
/// ops, as long as one finishes at least every 10 s, and then run nothing more. Call it from code that ops run, after
/// that code has made a library create static objects that later calls use. Static engines may then run such code until
/// the program ends.
///
/// It applies to std::exit and a return from main, on any thread, also inside an op, which then never finishes.
/// std::quick_exit and std::_Exit destroy no static objects. In a library that is closed by dlclose, it applies to that
/// library. Takes 32 bytes for each call, so repeated calls should be few. Threads: any.
void rest_before_statics_end() noexcept;

}  // namespace windrow
