// Minibatches as Python sees them.
#pragma once
#include <vector>

#include "batching/parameters.h"
#include "windrow/batching/runner.h"

namespace windrow::python {

/// A minibatch, with the sets of its runner.
struct MinibatchObject {
  std::vector<SharedParameters> sets;
  Device device;
  Minibatch minibatch;
};

}  // namespace windrow::python
