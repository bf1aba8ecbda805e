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
//   Order    An application reads its operands and overwrites its result. It mutates the result if it adds to it, or if
//            the result is only a part of its buffer. The engine orders applications accordingly.
//   Devices  Operands and result lie in the device's memory. An op on a device's lane issues its kernel and returns;
//            only ops on the host wait for the result.
//   Errors   Operands that do not fit throw MisuseError at the call. If memory is lacking, or if no op has written an
//            operand, the op fails, which poisons the result. An index out of range fails the op on the host; on a
//            device, the affected rows of the result become NaN (see Kernel).
//   Threads  Every function may be called from any thread.
#pragma once
#include "windrow/engine/internal/requirements.h"

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
  /// Operator::states tensors of the result's shape, which the op mutates as well.
  std::vector<Tensor> states = {};
};

/// Pushes an op that runs the device's kernel for `op`. Throws MisuseError, which names the operator and the shapes, if
/// the operands do not fit, or if `out` does not have the shape of the result or overlaps an operand. (For an
/// elementwise operator, `out` may be the same view as an operand.) Also throws it if the device has no kernel for
/// `op`.
void apply(const Device& device, const Operator& op, const Operands& operands, const Tensor& out,
           std::source_location pushed_at = std::source_location::current());

/// The same, into a new tensor, which it returns.
Tensor apply(const Device& device, const Operator& op, const Operands& operands,
             std::source_location pushed_at = std::source_location::current());

/// One of several applications.
struct Applied {
  Operands operands;
  Tensor out;
};
/// Applies an operator to each; no application may use what another one writes. On a device whose kernel computes
/// several at once, one op does so, and fails as a whole. Elsewhere each is an op. Throws as apply() does, before it
/// pushes anything.
void apply_each(const Device& device, const Operator& op, const std::vector<Applied>& all,
                std::source_location pushed_at = std::source_location::current());

/// For ops that do more than one application: the accesses that apply() would push, and the function to call once they
/// are granted. Its argument is the op's ordered lane, OpContext::lane(). The op must be pushed to the device's lane.
struct Prepared {
  std::vector<Access> accesses;
  std::function<void(Lane*)> compute;
};
/// Throws as apply() does.
Prepared prepare(const Device& device, const Operator& op, const Operands& operands, const Tensor& out);

}  // namespace windrow
