// Training throughput of the models.
#pragma once

#include <string>
#include <vector>

#include "report.h"
#include "windrow/engine/engine.h"
#include "windrow/models/trainer.h"

namespace windrow::perf {

struct TrainOptions {
  std::string model;  ///< the name of a workload
  WorkloadOptions workload;
  TrainerOptions trainer;  ///< the learning rate is the workload's own
  std::vector<int> workers = {1};
  Policy policy = Policy::pool;
  std::string without;  ///< names of the optimisations that `trainer` disables, for the record
  int passes = 5;
  bool inference = false;  ///< evaluate the validation set instead of training
};

/// Trains or evaluates a workload with each number of workers in turn, pass by pass; a pass goes through all samples
/// once. Returns a record for each number of workers. Throws what reading and training throw, and MisuseError if there
/// is no validation set to evaluate.
std::vector<Record> train(const TrainOptions& options);

}  // namespace windrow::perf
