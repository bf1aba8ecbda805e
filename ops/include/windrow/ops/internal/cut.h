// One application of an operator in pieces that idle workers can run; see parallel.h.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include "windrow/ops/kernel.h"

namespace windrow {

/// The least work of a piece, in elements that are read or written; a multiply-add of a product counts as a sixteenth
/// of an element. It makes the cost of a piece small compared with its work: see `windrow-perf mlp`.
constexpr Index units_a_piece = Index{1} << 17;

/// Computes the call on the host, inside an op. A call with the work of four or more pieces is cut. The cut depends
/// only on the operator's locality and on shapes, so the bits do not depend on the number of workers. Partial sums over
/// rows take at most half as much memory as the operands; workspaces come from `memory`. Errors are those of the whole
/// call.
void run_in_pieces(const Operator& op, const Kernel<float>& kernel, const KernelCall<float>& call, Allocator& memory,
                   Index smallest = units_a_piece);

}  // namespace windrow
