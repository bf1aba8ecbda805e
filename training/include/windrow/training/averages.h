// Averages of parameters over steps, which often score better than the parameters of the last step.
//
//   windrow::Averages averages(parameters, {.decay = 0.999});
//   optimiser.step(n);
//   averages.update();      // after each step
//   averages.swap();        // before an evaluation
//   evaluate();
//   averages.swap();        // and after it
//
// Contract
//   Errors   An update of a parameter that failed poisons its average.
//   Life     As for Optimiser.
//   Replays  Updates of a captured graph, or in the body of a Static, count on. All parameters must be there when the
//            averages are made, or before an update outside of a capture.
//   Threads  One at a time, together with the parameters.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "windrow/batching/parameters.h"
#include "windrow/training/optimiser.h"

namespace windrow {

struct StepCounts;

struct AveragesOptions {
  /// An update changes the average by 1 - decay of the difference from the value. With 0, the average is that of all
  /// updates alike (Polyak and Juditsky 1992). At least 0, less than 1. The first update of a parameter sets its
  /// average.
  double decay = 0.999;
};

/// An owner.
class Averages {
 public:
  /// Throws MisuseError for options out of range.
  explicit Averages(Parameters& parameters, AveragesOptions options = {});
  Averages(const Averages&) = delete;
  Averages& operator=(const Averages&) = delete;

  /// Pushes ops that take the current values in. Throws MisuseError while swapped.
  void update(std::source_location from = std::source_location::current());
  struct Progress {
    std::uint64_t updates = 0;  ///< those of the parameter that has had the most
    /// By parameter, if it has had fewer.
    std::map<std::string, std::uint64_t> updates_of = {};
  };
  /// Waits for the updates pushed so far.
  Progress progress() const;
  /// That of progress().
  std::uint64_t updates() const { return progress().updates; }
  /// Pushes ops that exchange the values of the parameters with the averages; does nothing before the first update.
  void swap(std::source_location from = std::source_location::current());

  /// For checkpoints, by the names of the parameters; empty before the first update. Throws MisuseError while swapped.
  std::vector<OptimiserTensor> tensors() const;
  /// Goes on from these updates of the parameters that there are, with tensors that the caller sets.
  void restore(const Progress& progress);
  void restore(std::uint64_t updates) { restore(Progress{.updates = updates}); }

 private:
  void make_missing();

  Parameters& parameters_;
  const AveragesOptions options_;
  std::vector<Tensor> averages_;  // by parameter
  std::shared_ptr<StepCounts> counts_;
  bool updated_ = false, swapped_ = false;
};

}  // namespace windrow
