// Tables like those that published systems report. Each has its own source. Start here.
//
// All commands train with a learning rate of 0, which costs as much as any other rate. So all variants that run in turn
// on one workload do the same work in each repetition.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "batching/table.h"
#include "program.h"
#include "windrow/models/trainer.h"
#include "windrow/models/treebank.h"

namespace windrow::perf {

/// The options of a measurement. A table ignores the options that it does not use.
struct TableOptions {
  std::vector<std::string> models;
  WorkloadOptions workload;  ///< each size applies to the models that have it
  std::vector<int> batches;  ///< samples per minibatch
  std::vector<int> hidden;   ///< hidden sizes
  int repetitions = 5;
  int turn_ms = 200;  ///< a measurement repeats its samples until it has taken about this long
  std::vector<int> workers;
};

/// Throughput with each optimisation disabled (Xu et al. 2018, figure 10).
Table ablation(const TableOptions& options);
/// The same by what steps do: memory operations and computation (Xu et al. 2018, table 2).
Table step_times(const TableOptions& options);
/// The optimisations that `windrow-perf train` and that table can disable.
std::vector<std::string> optimisation_names();
/// Describes each optimisation in one line, for --help.
std::string optimisations_text();
/// Disables one optimisation. Throws MisuseError for an unknown name.
void leave_out(RunnerOptions& options, const std::string& optimisation);
/// Throughput without batching and with each schedule policy (Neubig et al. 2017, table 1; Xu et al. 2018,
/// section 5.1).
Table schedules(const TableOptions& options);
/// Manual batching compared with a runner's automatic batching, by batch size (Neubig et al. 2017, figure 2).
Table manual_batching(const TableOptions& options);
/// A Tree-LSTM as lazy expressions compared with its vertex function, by hidden size.
Table lazy_expressions(const TableOptions& options);
/// Steps of operators that are pushed, and replayed by a Static: time, allocations, and peak memory.
Table static_steps(const TableOptions& options);

/// A model with its samples and one or more trainers, on an engine of its own. An owner.
class LoadedModel {
 public:
  /// Applies those sizes of the options that the model has.
  LoadedModel(const std::string& model, const TableOptions& options);

  const Workload& workload() const { return workload_; }
  Device device() { return host_device(engine_); }
  /// Creates a trainer, which lives as long as this object.
  Trainer& trainer(int batch, const RunnerOptions& runner = {});
  /// The number of samples that takes this trainer about the time of one measurement, as a multiple of `least`. Trains
  /// to find out.
  std::size_t samples_of_a_turn(Trainer& trainer, std::size_t least) const;
  /// Trains on as many, and returns units per second.
  std::function<double()> turn(Trainer& trainer, std::size_t least) const {
    return
        [&trainer, samples = samples_of_a_turn(trainer, least)] { return trainer.train(samples).units_per_second(); };
  }
  /// The samples of a measurement: the training set, but no more than the options say.
  std::size_t samples() const { return samples_; }

 private:
  Engine engine_;
  const program::ToldOnce once_{engine_};
  Workload workload_;
  const std::size_t samples_;
  const double turn_seconds_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

/// The sizes of all models, such as " dag: hidden 256, embedding 256."
std::string sizes_text(const TableOptions& options);
/// A text such as "96 samples, 2 workers, medians of 3 repetitions, in each of which all variants ran in turn".
std::string turns_text(const TableOptions& options);

}  // namespace windrow::perf
