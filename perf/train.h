// How fast models train.
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
  TrainerOptions trainer;  ///< the rate is the workload's own
  std::vector<int> workers = {1};
  Policy policy = Policy::pool;
  std::string without;  ///< names of what `trainer` leaves out, for the record
  int passes = 5;
  bool inference = false;  ///< ask about the unseen samples, and train nothing
};

/// Trains a workload, or asks it, each number of workers in turn, pass by pass; a pass goes through all samples once. A
/// record for each number of workers. Throws what reading and training throw, and MisuseError if there is nothing to
/// ask.
std::vector<Record> train(const TrainOptions& options);

}  // namespace windrow::perf
