// Trains a workload, and asks it about what it has not seen.
//
//   windrow::Trainer trainer(host, workload, {.batch = 64, .rate = workload.kind->rate});
//   windrow::Trainer::Pass pass = trainer.train();
//   for (const windrow::Figure& figure : trainer.evaluate()) ...
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "windrow/models/workload.h"

namespace windrow {

struct TrainerOptions {
  std::size_t batch = 64;  ///< samples a minibatch
  /// Of gradient descent on the sum of the losses, divided by the samples of the minibatch.
  double rate = 0.1;       ///< 0 or more
  std::uint64_t seed = 1;  ///< of the order of samples
  RunnerOptions runner = {};
};

/// An owner; must end before the workload.
///
/// The same seeds and the same calls give the same bits, whatever the policy and the number of workers.
/// Errors: as for Runner; wrong options, and nothing to learn from, throw MisuseError.
/// Threads: one at a time.
class Trainer {
 public:
  Trainer(const Device& device, Workload& workload, TrainerOptions options);

  /// How samples are computed: in batches, or for comparison one vertex at a time by the same kernels.
  enum class Batching { batched, unbatched };
  /// What was trained, and how it went. A value.
  struct Pass {
    std::size_t samples = 0;
    std::int64_t units = 0, vertices = 0, labels = 0;
    double flops = 0;  ///< forward, by the workload's formula
    double loss = 0;   ///< a label, before the step of its minibatch; 0 of none
    double seconds = 0;

    double units_a_second() const { return static_cast<double>(units) / seconds; }
  };
  /// Trains on the next samples in an order that is drawn for each time through all of them. Returns when all is done;
  /// throws OpError if a loss is not finite; then the parameters are poisoned, and the workload is of no more use.
  Pass train(std::size_t samples, Batching batching = Batching::batched);
  /// On each sample once, in a new order.
  Pass train();
  /// Unbatched, on as many samples as that takes a second or some of, for comparison; one or more.
  Pass train_some_unbatched();

  /// The score of the unseen samples.
  std::vector<Figure> evaluate();
  /// Of the figures that make it, in their order.
  std::vector<std::string> figure_names();

  /// Of training of that kind; of evaluation too if batched.
  RunnerStats stats(Batching batching = Batching::batched) const;

 private:
  SampleNumbers next_minibatch(std::size_t samples);

  const Device device_;
  Workload& workload_;
  const TrainerOptions options_;
  const std::unique_ptr<Learner> learner_;
  std::unique_ptr<Learner> unbatched_;  // made when first asked for
  std::mt19937_64 random_;
  std::vector<std::size_t> order_;  // of training samples
  std::size_t next_ = 0;            // in order_
};

}  // namespace windrow
