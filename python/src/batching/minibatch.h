// Minibatches as Python sees them.
#pragma once
#include <vector>

#include "batching/parameters.h"
#include "windrow/batching/runner.h"

namespace windrow::python {

/// The names of what a vertex function pulls from calls of a runner, and of what it pushes.
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

}  // namespace windrow::python
