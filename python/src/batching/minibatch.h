// Minibatches as Python sees them.
#pragma once
#include <vector>

#include "batching/parameters.h"
#include "ops/arrays.h"
#include "windrow/batching/runner.h"

namespace windrow::python {

/// The names of a vertex function, of the tensors that it pulls from calls of a runner, and of its outputs.
struct NamesOfFunction {
  std::string function;
  std::vector<std::string> tensors, outputs;
};
using FunctionNames = std::shared_ptr<const NamesOfFunction>;
FunctionNames names_of(const VertexFunction& function);

/// A minibatch, with the sets of its runner.
struct MinibatchObject {
  std::vector<SharedParameters> sets;
  Device device;
  Minibatch minibatch;
  FunctionNames names;
};

/// Calls `call` without the GIL, in this thread's turn with the sets, and with their engine in use. There must be at
/// least one set.
template <class Call>
auto in_turn_of_all(const std::vector<SharedParameters>& sets, const Call& call) {
  const InUse use(&sets.front()->parameters.device());
  const Turn turn{std::span<const SharedParameters>(sets)};
  const WithoutGil without_gil;
  return call();
}

}  // namespace windrow::python
