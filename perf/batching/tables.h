// Tables that the predecessors published, each measured here by one command. Start here; a table is a source of its
// own.
//
// All train without moving: at a rate of 0, which costs what any other does, so that variants which take turns on one
// workload do the same work whenever it is their turn.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "batching/result.h"
#include "program.h"
#include "windrow/models/trainer.h"
#include "windrow/models/treebank.h"

namespace windrow::perf {

/// What is measured. A table passes over what it has no use for.
struct TableOptions {
  std::vector<std::string> models;
  WorkloadOptions workload;  ///< sizes go to the models that have them
  std::vector<int> batches;  ///< samples a minibatch
  std::vector<int> leaves;   ///< of trees
  std::vector<int> hidden;   ///< widths of the states
  int repetitions = 5;
  int turn_ms = 200;  ///< a turn goes through its samples again and again until it has taken about as long
  int workers = 1;
};

/// Batched against one vertex at a time over the batch size (Xu et al. 2018, section 5.1).
Result batched_against_serial(const TableOptions& options);
/// What of the time graphs and schedules take, over the size of trees and of minibatches (Xu et al. 2018, figure 9).
Result overhead(const TableOptions& options);
/// What each optimisation of a runner brings (Xu et al. 2018, figure 10).
Result ablation(const TableOptions& options);
/// What `windrow-perf train` can leave out, and that table does.
std::vector<std::string> optimisation_names();
/// Throws MisuseError for none of them.
void leave_out(RunnerOptions& options, const std::string& optimisation);
/// Moving values against computing with them, over the batch size (Xu et al. 2018, table 2).
Result memory_operations(const TableOptions& options);
/// No batching, and batches by each policy (Neubig et al. 2017, table 1).
Result schedules(const TableOptions& options);
/// Minibatches written by hand against those that a runner finds, over the batch size (Neubig et al. 2017, figure 2).
Result by_hand(const TableOptions& options);
/// A Tree-LSTM as lazy expressions against its vertex function, over the width.
Result lazy_expressions(const TableOptions& options);
/// Operators on large tensors, over the number of workers.
Result large_tensors(const TableOptions& options);

/// All of a model's samples, on an engine of its own, with one way or several of training it. An owner.
class LoadedModel {
 public:
  /// With those of the options' sizes that the model has.
  LoadedModel(const std::string& model, const TableOptions& options);

  const Workload& workload() const { return workload_; }
  Device device() { return host_device(engine_); }
  /// It goes with the model.
  Trainer& trainer(std::size_t batch, const RunnerOptions& runner = {});
  /// How many samples a turn goes through at least: as many as it learns from, but no more than the options say.
  std::size_t samples() const { return samples_; }
  /// Some times `least` samples, so that this trainer takes a turn's time for them. Trains, to find out.
  std::size_t samples_of_a_turn(Trainer& trainer, std::size_t least) const;

 private:
  Engine engine_;
  const program::ToldOnce once_{engine_};
  Workload workload_;
  const std::size_t samples_;
  const double turn_seconds_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

/// Those of the folder, or so many generated ones.
std::vector<LabelledTree> treebank(const WorkloadOptions& options, std::size_t trees);

/// "hidden 256, embedding 256", of that model.
std::string sizes_text(const std::string& model, const TableOptions& options);
/// "on 2 workers, medians of 3 repetitions in which all variants took turns".
std::string turns_text(const TableOptions& options);

}  // namespace windrow::perf
