// Ops that commute on a variable run one at a time.
#pragma once

#include "record/op.h"

namespace windrow {

/// Takes the op's turns at all variables where it commutes, or takes none and keeps the op until a retry may succeed.
/// Ops that were kept, and should retry now, go to `others`.
bool take_turns(OpRecord& op, ReadyList& others) noexcept;
void end_turns(OpRecord& op, ReadyList& others) noexcept;

}  // namespace windrow
