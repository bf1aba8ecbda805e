// Collects and writes the report of `windrow train --report`.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "program/output/report.h"
#include "windrow/models/trainer.h"
#include "windrow/training/record.h"

namespace CLI {
class App;
}

namespace windrow::program {

/// Collects the report of a training, and writes it to FOLDER/report.html. An owner; must not move while the trainer
/// exists.
class Reporting {
 public:
  /// Does nothing if the folder is empty. Otherwise creates it, and throws FileError or Error unless the report can be
  /// written there.
  explicit Reporting(const std::string& folder);
  Reporting(const Reporting&) = delete;
  Reporting& operator=(const Reporting&) = delete;

  bool on() const { return !file_.empty(); }
  /// Makes the trainer measure the values that the report shows; some are of the device's memory.
  void watch(TrainerOptions& options, const Device& device);
  /// Sets the table of flags, from the command and the defaults of the workload.
  void set_flags(const CLI::App& command, const WorkloadOptions& options, double rate);
  struct Run {
    std::string about;  ///< a sentence
    int workers;
    std::string members;  ///< of the group, if there is one
  };
  /// Call it before the first epoch.
  void begin(const Run& run, const Workload& workload, const Trainer& trainer, const TrainerOptions& options);
  /// Adds the epochs of an earlier run: epoch_record() of each. It has only some of their values.
  void set_epochs(const std::vector<Record>& epochs, const Workload& workload);
  /// Call both after each epoch, before and after its evaluation.
  void trained(const Trainer& trainer, const Trainer::Pass& pass);
  void evaluated(const Trainer& trainer, const std::vector<Metric>& metrics);
  /// Writes the file, and prints its path. `outcome` is a sentence.
  void write(const Trainer& trainer, const std::string& outcome);
  /// The same, unless this run trained nothing: then the file of an earlier run is kept, and a line says so.
  void write_if_trained(const Trainer& trainer, const std::string& outcome);

 private:
  using Clock = std::chrono::steady_clock;

  std::filesystem::path file_;
  TrainingReport report_;
  std::shared_ptr<const Allocator> memory_;  // the device's
  Clock::time_point mark_ = {};              // when the epoch, or its evaluation, began
  StepTimes before_ = {};                    // this epoch
  std::optional<Communicator> group_ = {};
  std::chrono::nanoseconds in_collectives_{0};  // before this epoch
};

}  // namespace windrow::program
