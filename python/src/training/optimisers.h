// Optimisers and averages as Python sees them.
#pragma once
#include <memory>

#include "batching/parameters.h"
#include "windrow/training/optimiser.h"

namespace windrow::python {

/// An optimiser, with the set that it refers to, which must end later.
struct OptimiserObject {
  SharedParameters set;
  std::shared_ptr<Optimiser> optimiser;
};

struct AveragesObject {
  SharedParameters set;
  std::unique_ptr<Averages> averages;
};

}  // namespace windrow::python
