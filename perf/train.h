// How fast models train.
#pragma once

#include <string>
#include <vector>

#include "report.h"
#include "windrow/engine/engine.h"
#include "windrow/models/tree_trainer.h"

namespace windrow::perf {

struct TrainOptions {
  std::string data;  ///< folder; generated if empty
  TreeTrainerOptions trainer;
  std::vector<int> workers = {1};
  Policy policy = Policy::pool;
  int passes = 5;
};

/// Trains a Tree-LSTM, each number of workers in turn, pass by pass; a pass goes through all trees once. A record for
/// each number of workers. Throws what reading and training throw.
std::vector<Record> train_tree_lstm(const TrainOptions& options);

}  // namespace windrow::perf
