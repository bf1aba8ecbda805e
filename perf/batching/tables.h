// Tables that published systems report, each measured here by one command. Start here; each table has its own source.
//
// All commands train with a learning rate of 0, which costs as much as any other. So all variants that run in turn on
// one workload do the same work in each repetition.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "batching/result.h"
#include "program.h"
#include "windrow/models/trainer.h"
#include "windrow/models/treebank.h"

namespace windrow::perf {

/// What is measured. A table ignores the options that it does not use.
struct TableOptions {
  std::vector<std::string> models;
  WorkloadOptions workload;  ///< sizes go to the models that have them
  std::vector<int> batches;  ///< samples per minibatch
  std::vector<int> leaves;   ///< per tree
  std::vector<int> hidden;   ///< hidden sizes
  int repetitions = 5;
  int turn_ms = 200;  ///< a measurement repeats its samples until it has taken about this long
  int workers = 1;
  std::vector<int> worker_counts;  ///< to compare
};

/// Speedup of batching over one vertex at a time, by batch size (Xu et al. 2018, section 5.1).
Result batched_against_serial(const TableOptions& options);
/// Overhead of graph construction and scheduling, by tree size and batch size (Xu et al. 2018, figure 9).
Result overhead(const TableOptions& options);
/// Throughput with each optimisation disabled (Xu et al. 2018, figure 10).
Result ablation(const TableOptions& options);
/// The optimisations that `windrow-perf train` and that table can disable.
std::vector<std::string> optimisation_names();
/// Says what each of them does, a line each, for --help.
std::string optimisations_text();
/// Disables that optimisation. Throws MisuseError for an unknown name.
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

/// All of a model's samples, on an engine of its own, with one way or several of training it. An owner.
class LoadedModel {
 public:
  /// With those of the options' sizes that the model has.
  LoadedModel(const std::string& model, const TableOptions& options);

  const Workload& workload() const { return workload_; }
  Device device() { return host_device(engine_); }
  /// It goes with the model.
  Trainer& trainer(std::size_t batch, const RunnerOptions& runner = {});
  /// The samples of a measurement: the training set, but no more than the options say.
  std::size_t samples() const { return samples_; }
  /// A multiple of `least`, so that this trainer takes the time of a measurement for them. Trains to find out.
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
/// "2 workers, medians of 3 repetitions, in each of which all variants ran in turn".
std::string turns_text(const TableOptions& options);

}  // namespace windrow::perf
