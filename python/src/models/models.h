// Models as Python sees them.
#pragma once
#include <memory>

#include "batching/parameters.h"
#include "ops/arrays.h"
#include "windrow/models/workload.h"

namespace windrow::python {

/// A model with its data. One thread at a time uses it, in the turn of its parameters.
struct ModelObject {
  std::shared_ptr<Workload> workload;
  Device device;
  SharedParameters set;
};

/// Calls `call` with the model, in this thread's turn, with the engine in use, and without the GIL.
template <class Call>
auto in_turn(const ModelObject& model, const Call& call) {
  const InUse use(&model.device);
  const Turn turn(*model.set);
  const WithoutGil without_gil;
  return call(*model.workload);
}

/// What Network::predict() returns, with the names of the labels.
nb::list predictions_of(std::vector<Prediction> predictions, std::vector<std::string> labels);

}  // namespace windrow::python
