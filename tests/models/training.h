// Shared by tests of training: workloads with what they need, and access to their graphs and parameters.
#pragma once

#include "tests/batching/support.h"
#include "tests/models/data.h"
#include "windrow/models/internal/graph_network.h"
#include "windrow/models/trainer.h"

namespace windrow::testing {

/// The network of a workload whose graphs exist from the beginning.
inline GraphNetwork& graphs_of(const Workload& workload) { return dynamic_cast<GraphNetwork&>(*workload.network); }

inline std::vector<Floats> parameters_of(const Workload& workload) { return values_of(*workload.parameters); }

/// A workload on the host, with its engine.
struct HostWorkload {
  explicit HostWorkload(const std::string& model, const WorkloadOptions& options = {}, const EngineOptions& on = {})
      : engine(on), workload(make_workload(model, host, options)) {}

  Engine engine;
  Device host = host_device(engine);
  Workload workload;
};

/// The same with a trainer.
struct Training : HostWorkload {
  explicit Training(const std::string& model, const WorkloadOptions& options = {}, const TrainerOptions& training = {},
                    const EngineOptions& on = {})
      : HostWorkload(model, options, on), trainer(host, workload, training) {}

  /// The loss of the last of so many passes over the samples.
  double train(int passes) {
    double loss = 0;
    for (int pass = 0; pass < passes; ++pass) loss = trainer.train().loss;
    return loss;
  }

  Trainer trainer;
};

/// What a training gives.
struct Trained {
  std::vector<Floats> parameters;
  std::vector<double> losses;
  friend bool operator==(const Trained&, const Trained&) = default;
};

/// After two passes over the samples.
inline Trained train_twice(const std::string& model, const EngineOptions& on, const WorkloadOptions& options,
                           const TrainerOptions& training, Trainer::Batching batching = Trainer::Batching::batched) {
  Training run(model, options, training, on);
  Trained result;
  for (int pass = 0; pass < 2; ++pass) result.losses.push_back(run.trainer.train(options.samples, batching).loss);
  result.parameters = parameters_of(run.workload);
  return result;
}

}  // namespace windrow::testing
