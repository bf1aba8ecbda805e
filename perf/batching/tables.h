// Tables like those that published systems report. One command measures each table, and each has its own source. Start
// here.
//
// All commands train with a learning rate of 0, which costs as much as any other rate. So all variants that run in turn
// on one workload do the same work in each repetition.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "batching/result.h"
#include "program.h"
#include "windrow/models/trainer.h"
#include "windrow/models/treebank.h"

namespace windrow::perf {

/// The options of a measurement. A table ignores the options that it does not use.
struct TableOptions {
  std::vector<std::string> models;
  WorkloadOptions workload;  ///< each size applies to the models that have it
  std::vector<int> batches;  ///< samples per minibatch
  std::vector<int> leaves;   ///< per tree
  std::vector<int> hidden;   ///< hidden sizes
  int repetitions = 5;
  int turn_ms = 200;  ///< a measurement repeats its samples until it has taken about this long
  int workers = 1;
  std::vector<int> worker_counts;  ///< the numbers of workers to compare
};

/// Speedup of batching over one vertex at a time, by batch size (Xu et al. 2018, section 5.1).
Result batched_against_serial(const TableOptions& options);
/// Overhead of graph construction and scheduling, by tree size and batch size (Xu et al. 2018, figure 9).
Result overhead(const TableOptions& options);
/// Throughput with each optimisation disabled (Xu et al. 2018, figure 10).
Result ablation(const TableOptions& options);
/// The optimisations that `windrow-perf train` and that table can disable.
std::vector<std::string> optimisation_names();
/// Describes each optimisation in one line, for --help.
std::string optimisations_text();
/// Disables one optimisation. Throws MisuseError for an unknown name.
void leave_out(RunnerOptions& options, const std::string& optimisation);
/// Time of memory operations and of computation, by batch size (Xu et al. 2018, table 2).
Result memory_operations(const TableOptions& options);
/// Throughput without batching and with each schedule policy (Neubig et al. 2017, table 1).
Result schedules(const TableOptions& options);
/// Manual batching compared with a runner's automatic batching, by batch size (Neubig et al. 2017, figure 2).
Result by_hand(const TableOptions& options);
/// A Tree-LSTM as lazy expressions compared with its vertex function, by hidden size.
Result lazy_expressions(const TableOptions& options);
/// Operators on large tensors, by number of workers.
Result large_tensors(const TableOptions& options);
/// Training steps that are pushed, and replayed by a Static.
Result replayed_steps(const TableOptions& options);
/// Time and peak memory of steps, by when and where their tensors get memory.
Result step_memory(const TableOptions& options);
/// Steps of optimisers on large parameters, as a share of the memory bandwidth.
Result optimiser_steps(const TableOptions& options);

/// A model with its samples and one or more trainers, on an engine of its own. An owner.
class LoadedModel {
 public:
  /// Applies those sizes of the options that the model has.
  LoadedModel(const std::string& model, const TableOptions& options);

  const Workload& workload() const { return workload_; }
  Device device() { return host_device(engine_); }
  /// Creates a trainer, which lives as long as this object.
  Trainer& trainer(std::size_t batch, const RunnerOptions& runner = {});
  /// The samples of a measurement: the training set, but no more than the options say.
  std::size_t samples() const { return samples_; }
  /// The number of samples that takes this trainer about the time of one measurement, as a multiple of `least`. Trains
  /// to find out.
  std::size_t samples_of_a_turn(Trainer& trainer, std::size_t least) const;

 private:
  Engine engine_;
  const program::ToldOnce once_{engine_};
  Workload workload_;
  const std::size_t samples_;
  const double turn_seconds_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

/// The training trees of the data folder if there is one, otherwise `trees` generated ones.
std::vector<LabelledTree> treebank(const WorkloadOptions& options, std::size_t trees);

/// The sizes of that model, such as "hidden 256, embedding 256".
std::string sizes_text(const std::string& model, const TableOptions& options);
/// A text such as "2 workers, medians of 3 repetitions, in each of which all variants ran in turn".
std::string turns_text(const TableOptions& options);

}  // namespace windrow::perf
