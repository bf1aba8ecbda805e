// Learning rates as functions of the step.
//
//   windrow::LearningRate rate = windrow::LearningRate::warm_up(1000, windrow::LearningRate::cosine(1e-3, 20000));
//   rate(0);  // 1e-6
//
// Knows no parameters: an optimiser evaluates the schedule in the op that begins a step.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <functional>
#include <limits>

namespace windrow {

/// The learning rate of each step, counted from 0. A value; calls may run on any thread.
class LearningRate {
 public:
  /// The same rate for each step. Like the others, throws MisuseError for a rate that is negative or outside the range
  /// of a float.
  LearningRate(double rate);

  /// Multiplies the rate by `factor` after each `every` steps. Throws MisuseError unless both are above 0. A step fails
  /// if its rate has grown beyond the range of a float.
  static LearningRate steps(double rate, std::uint64_t every, double factor);
  /// From `rate` at step 0 along half a cosine to `least` at step `steps`, and `least` from then on (Loshchilov and
  /// Hutter 2017, without restarts). Throws MisuseError for 0 steps.
  static LearningRate cosine(double rate, std::uint64_t steps, double least = 0);
  /// Linear from `then(0)` / `steps` at step 0 to `then(0)` at step `steps` - 1; then(step - `steps`) afterwards.
  static LearningRate warm_up(std::uint64_t steps, LearningRate then);
  /// Any pure function. A step fails if the function throws or returns a rate that is negative or outside the range of
  /// a float.
  static LearningRate from(std::function<double(std::uint64_t)> function);

  double operator()(std::uint64_t step) const { return function_(step); }

 private:
  explicit LearningRate(std::function<double(std::uint64_t)> function) : function_(std::move(function)) {}

  std::function<double(std::uint64_t)> function_;
};

/// Lowers the learning rate when a measure of the validation set no longer improves. A value; its members are its whole
/// state, so a checkpoint can keep it.
struct Plateau {
  double factor = 0.1;          ///< the rate is multiplied by this: 0 or more, and less than 1
  std::uint64_t patience = 10;  ///< after so many reports without an improvement, the next one lowers the rate
  /// A report is an improvement if it is below (1 - threshold) * best, for a positive best. A report that is not finite
  /// is none. 0 or more, and less than 1.
  double threshold = 1e-4;
  double least = 0;  ///< the smallest product of all factors, 0 to 1

  double best = std::numeric_limits<double>::infinity();  ///< the best report so far; infinite before there is one
  std::uint64_t reports = 0, without_improvement = 0;
  double lowered = 1;  ///< the product of all factors so far

  /// Reports a measure that improves as it falls, such as a loss. Returns `lowered`, by which the schedule's rate is to
  /// be multiplied: see Optimiser::scale_rate(). Throws MisuseError for options out of range.
  double report(double measure);
};

}  // namespace windrow
