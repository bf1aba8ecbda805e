// Operators applied to tensors, as engine ops. Start here.
//
//   windrow::Engine engine;
//   windrow::Device host = windrow::host_device(engine);
//   windrow::Tensor x(host, 2, 3), w(host, 3, 1);
//   x.set({1, 2, 3, 4, 5, 6});
//   w.set({1, 0, -1});
//   windrow::Tensor y = windrow::apply(host, windrow::op::matmul, {.in = {x, w}});
//   y.get();  // waits: -2, -2
//
// Contract
//   Order    An application reads its operands and overwrites its result; where it adds, or where the result is a part
//            of a buffer, it mutates it. The engine orders the rest.
//   Errors   Operands that do not fit throw MisuseError at the call. An index out of range, no memory, or an operand
//            that nobody wrote fail the op, and poison the result.
//   Threads  Any.
#pragma once

#include <functional>
#include <source_location>
#include <vector>

#include "windrow/ops/operators.h"
#include "windrow/ops/tensor.h"

namespace windrow {

struct Operands {
  std::vector<Tensor> in = {};
  std::vector<IntTensor> indices = {};
  Attributes attributes = {};
  Write write = Write::overwrite;
};

/// Pushes op's kernel of that device. Throws MisuseError, naming the operator and the shapes, if the operands do not
/// fit, if `out` has not the shape of the result, or if it overlaps an operand: elementwise operators may be applied in
/// place, with the very same view.
void apply(const Device& device, const Operator& op, const Operands& operands, const Tensor& out,
           std::source_location pushed_at = std::source_location::current());

/// The same into a new tensor.
Tensor apply(const Device& device, const Operator& op, const Operands& operands,
             std::source_location pushed_at = std::source_location::current());

/// What apply() pushes, for an op that does more than that: what it touches, and what computes it when these are
/// granted.
struct Prepared {
  std::vector<Access> accesses;
  std::function<void()> compute;
};
/// Throws as apply() does.
Prepared prepare(const Device& device, const Operator& op, const Operands& operands, const Tensor& out);

}  // namespace windrow
