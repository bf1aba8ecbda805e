// The tapes that are active on this thread.
#pragma once
#include "windrow/ops/tape.h"

namespace windrow::python {

/// The tape of the innermost with block of this thread, or null.
Tape* active_tape();

}  // namespace windrow::python
