// Shared by tests of training: access to a workload's graphs and parameters.
#pragma once

#include "tests/models/data.h"
#include "windrow/models/internal/graph_network.h"
#include "windrow/models/trainer.h"

namespace windrow::testing {

/// The network of a workload whose graphs exist from the beginning.
inline GraphNetwork& graphs_of(const Workload& workload) { return dynamic_cast<GraphNetwork&>(*workload.network); }

inline std::vector<std::vector<float>> parameters_of(const Workload& workload) {
  std::vector<std::vector<float>> values;
  const Parameters& parameters = *workload.parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) values.push_back(parameters.value(parameters[i]).get());
  return values;
}

inline void scale(Parameters& parameters, float by) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<float> values = parameters.value(parameters[i]).get();
    for (float& value : values) value *= by;
    parameters.value(parameters[i]).set(values);
  }
}

/// What a training gives.
struct Trained {
  std::vector<std::vector<float>> parameters;
  std::vector<double> losses;
  friend bool operator==(const Trained&, const Trained&) = default;
};

/// After two passes over the samples.
inline Trained train_twice(const std::string& model, const EngineOptions& engine_options,
                           const WorkloadOptions& options, const TrainerOptions& training,
                           Trainer::Batching batching = Trainer::Batching::batched) {
  Engine engine(engine_options);
  Workload workload = make_workload(model, host_device(engine), options);
  Trainer trainer(host_device(engine), workload, training);
  Trained result;
  for (int pass = 0; pass < 2; ++pass) result.losses.push_back(trainer.train(options.samples, batching).loss);
  result.parameters = parameters_of(workload);
  return result;
}

}  // namespace windrow::testing
