// One application of an operator in pieces that idle workers may take; see parallel.h.
#pragma once

#include "windrow/ops/kernel.h"

namespace windrow {

/// About what one element takes that is read or written, a third of a nanosecond; a product's step takes a sixteenth.
/// A piece takes so many or more, some 50 us, beside which what it costs is little.
constexpr Index units_a_piece = Index{1} << 17;

/// Computes the call on the host, inside an op. A call that is worth four pieces or more is cut, by the operator's
/// locality and by shapes alone, so that the bits do not depend on the number of workers.
void run_in_pieces(const Operator& op, Kernel<float> kernel, const KernelCall<float>& call,
                   Index smallest = units_a_piece);

}  // namespace windrow
