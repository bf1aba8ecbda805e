// Flags that choose an optimiser and its learning rate.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "windrow/models/trainer.h"

namespace windrow::program {

/// The values of the flags. A value.
struct TrainingFlags {
  std::string method = "sgd", rate_schedule = "constant";
  double rate = 0;  ///< 0: the method's and the model's own
  double momentum = 0.9, penalty = 0, decay = 0;
  double clip_norm = 0, clip_value = 0;  ///< 0: none
  double rate_factor = 0.5;
  int rate_epochs = 2;
  std::uint64_t warm_up = 0, accumulate = 1, micro_batches = 1;
  double average = 0;  ///< decay of averages; 0: none
};

void add_training_flags(CLI::App& command, TrainingFlags& to);

/// Throws MisuseError for a flag that has no effect because of the others.
void require_used(const TrainingFlags& flags);
/// Sets a trainer's options from the flags. Schedules end after `epochs`.
void set_training(TrainerOptions& options, const TrainingFlags& flags, const Workload& workload, std::uint64_t epochs);

/// For checkpoints: the values on which later steps depend, by the names of the flags. Flags without an effect are left
/// out, such as the number of epochs unless a schedule ends with it.
Record training_record(const TrainingFlags& flags, const WorkloadKind& kind, std::uint64_t epochs);

/// Follows the scores of the validation set, epoch by epoch: whether they still improve, and how the learning rate
/// changes. An owner.
class Scores {
 public:
  explicit Scores(const TrainingFlags& flags);

  void report(const Metric& score, Optimiser& optimiser);
  int epochs_without_improvement() const { return without_; }
  /// Whether the last reported score is the best one.
  bool last_is_best() const { return best_ && without_ == 0; }

  /// For checkpoints. set() throws FileError for a record of something else.
  Record record() const;
  void set(const Record& record);

 private:
  std::optional<double> best_;  // less is better
  int without_ = 0;
  std::optional<Plateau> plateau_;
};

}  // namespace windrow::program
