// The report of a training: its contents and its layout.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/output/chart.h"
#include "windrow/models/workload.h"

namespace windrow::program {

/// A name and a value, for a table of two columns.
struct Fact {
  std::string name, value;
};

/// A value.
struct TrainingReport {
  struct Epoch {
    std::uint64_t number;  ///< from 1
    double training_loss;
    std::optional<double> validation_loss = {};
    std::vector<Metric> metrics = {};  ///< of the validation set; empty without one
    double units_per_second;
    double seconds;  ///< of training
    /// The part of `seconds` since the run was resumed, to which `times` and `collective_seconds` refer; 0 for earlier
    /// epochs.
    double timed_seconds;
    StepTimes times = {};           ///< of training, of all workers
    double collective_seconds = 0;  ///< of training, while a collective of rank 0 was under way
  };
  std::string model, about;  ///< a title, and a sentence about the run
  std::string unit;          ///< of throughput
  int workers = 1;
  std::string group = {};  ///< the members that train together, if there are several
  std::vector<Epoch> epochs = {};
  std::uint64_t first_minibatch = 0;           ///< the number of minibatches before this run
  std::vector<double> minibatch_losses = {};   ///< mean per label
  std::int64_t parameters = 0;                 ///< numbers in all of them
  std::int64_t minibatch_peak = 0;             ///< bytes
  std::string device = {};                     ///< its name
  std::int64_t device_peak = 0;                ///< bytes of its memory that were live
  std::int64_t device_cached = 0;              ///< bytes of its memory that the pool keeps at the end
  std::int64_t process_peak = 0;               ///< bytes
  std::vector<Fact> machine = {}, flags = {};  ///< the values of flags that were given end in " *"
};

/// A page that needs no other file.
std::string html(const TrainingReport& report);

}  // namespace windrow::program
