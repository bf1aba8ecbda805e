// One application of an operator in pieces that idle workers may take; see parallel.h.
#pragma once

#include "windrow/ops/kernel.h"

namespace windrow {

/// The least work of a piece, in elements that are read or written; a multiplication and addition of a product counts as
/// a sixteenth of that. It is chosen so that the cost of a piece is small beside its work: see `windrow-perf mlp`.
constexpr Index units_a_piece = Index{1} << 17;

/// Computes the call on the host, inside an op. A call that is worth four pieces or more is cut, by the operator's
/// locality and by shapes alone, so that the bits do not depend on the number of workers. The memory of sums over rows
/// that are cut is at most half of what the call reads. Errors are those of the whole call.
void run_in_pieces(const Operator& op, Kernel<float> kernel, const KernelCall<float>& call,
                   Index smallest = units_a_piece);

}  // namespace windrow
