// Trains a workload, and evaluates it on its validation set.
//
//   windrow::Trainer trainer(host, workload, {.minibatch = 64, .optimiser = {.rate = workload.kind->learning_rate}});
//   windrow::Trainer::Pass pass = trainer.train();
//   for (const windrow::Metric& metric : trainer.evaluate()) ...
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "windrow/models/workload.h"
#include "windrow/training/checkpoint.h"
#include "windrow/training/data_parallel.h"
#include "windrow/training/optimiser.h"

namespace windrow {

struct TrainerOptions {
  std::size_t minibatch = 64;  ///< samples per minibatch, 1 to 2^24
  /// Computes a member's share of a minibatch in this many parts, one after the other, which takes only the memory of
  /// the largest part. Samples are distributed among the parts by vertices. The steps are the same, up to rounding. 1
  /// to 2^24.
  std::size_t micro_batches = 1;
  Method method = Method::sgd();
  OptimiserOptions optimiser = {.rate = 0.1};  ///< for the sum of the losses, divided by the number of samples
  /// If set, scores are computed with averages of the parameters over steps.
  std::optional<AveragesOptions> averages = {};
  std::uint64_t seed = 1;  ///< of the order of samples
  /// Trains together with the trainers of the other members, which have the same workload and, except for this one, the
  /// same options. Each minibatch is distributed among them, by vertices. They make the same calls, except save().
  std::optional<Communicator> group = {};
  DataParallelOptions data_parallel = {};  ///< the trainer sets `sharded`
  /// Shards the update over the group: see DataParallelOptions::sharded. Not with local steps.
  bool sharded = false;
  /// Above 1: each member takes steps along its own gradients. After this many steps, and at the end of an epoch, the
  /// parameters of all members are replaced by their means; see DataParallel::average().
  std::size_t local_steps = 1;
  RunnerOptions runner = {};
  bool score_training = false;  ///< deprecated: has no effect
  /// Called with the mean loss per label of each minibatch, in order, when that loss has been waited for.
  std::function<void(double loss)> each_loss = {};
};

/// For each member of a group, the numbers of the training samples of a minibatch that it computes. deal() distributes
/// them by vertices.
std::vector<std::vector<std::size_t>> deal_minibatch(const Workload& workload, SampleNumbers minibatch, int members);

/// An owner; must end before the workload.
///
/// The same seeds and the same calls give the same bits, with every policy and number of workers.
/// Memory: if the device's memory has a limit (MemoryUse::limit), a minibatch begins before the last one has ended only
/// if at most half of the limit has ever been live. Errors: as for Runner. The constructor throws MisuseError for
/// options out of range; training throws it without training samples. Threads: one at a time.
class Trainer {
 public:
  Trainer(const Device& device, Workload& workload, TrainerOptions options);
  ~Trainer();

  /// How samples are computed: in batches or, for comparison, one vertex at a time with the same kernels.
  enum class Batching { batched, unbatched };
  /// The amount of training, and its results. A value.
  struct Pass {
    std::size_t samples = 0;
    std::int64_t units = 0, vertices = 0, labels = 0;
    double flops = 0;  ///< forward, by the workload's formula
    double loss = 0;   ///< mean per label, before the step of its minibatch; 0 without labels
    double seconds = 0;
    std::vector<Metric> metrics = {};  ///< deprecated: always empty

    double units_per_second() const { return static_cast<double>(units) / seconds; }
  };
  /// Trains on the next `samples` samples, in an order that is drawn anew for each epoch. Returns when all ops have
  /// finished. Throws OpError if a loss is not finite, with a NotFiniteError at its root; the parameters are poisoned
  /// then, and the workload cannot be used any more.
  Pass train(std::size_t samples, Batching batching = Batching::batched);
  /// Trains for one epoch: on each sample once, in a new order.
  Pass train();
  enum class Then { go_on, stop };
  /// Returns the decision of the group; `own` is this member's wish. All members stop if one of them wants to. All
  /// members call it, and it waits for them.
  Then agree(Then own) const;
  /// Called after each step except the last one of an epoch, with the results of this epoch so far; the loss is that of
  /// the minibatches that have finished. It may call save().
  using Between = std::function<Then(const Pass& so_far)>;
  /// Trains to the end of an epoch: continues the one that was stopped or resumed from a checkpoint, or else begins a
  /// new one. In a group, all members stop after a step if `between` of one of them says so; either all pass one, or
  /// none does. Returns the results of the whole epoch.
  Pass train_epoch(const Between& between);
  std::uint64_t epochs() const { return epochs_; }                                   ///< that have ended
  std::uint64_t minibatches() const { return workload_.parameters->minibatches(); }  ///< trained on so far
  /// After train_epoch() has thrown: the number of the minibatch whose loss was waited for, or else of the last that
  /// began.
  std::uint64_t failed_minibatch() const;
  bool in_epoch() const { return next_ < order_.size(); }

  /// Writes a checkpoint of all state on which the results of later steps depend. The state of batching is not written;
  /// this trainer drops it (Learner::forget()). The step is the number of minibatches so far. The records "training"
  /// and "trainer" are added to the document. Waits. Throws as Snapshot and CheckpointWriter do. In a group, rank 0
  /// saves, and the other members call help_save() at the same time. A trainer that resumes in a group of another size
  /// keeps the order of samples, but does not give the same bits.
  void save(CheckpointWriter& writer, Record document = {});
  /// Sends this member's part of the checkpoint to rank 0.
  void help_save();
  /// Resumes from a checkpoint of a trainer with the same options, workload and data. Later steps give the same bits as
  /// in the trainer that saved it. Call it before any training. Throws FileError for a checkpoint of something else;
  /// the trainer cannot be used after that.
  void resume(const SavedCheckpoint& checkpoint);
  /// Trains unbatched, for comparison: on samples with about 10,000 vertices or 2e10 floating point operations,
  /// whichever is less, but at least one sample.
  Pass train_some_unbatched();

  /// The optimiser of all steps; its parameters are those of the workload.
  Optimiser& optimiser() { return optimiser_; }

  /// Computes the score on the validation set.
  std::vector<Metric> evaluate();
  /// The mean loss per label in the last evaluate(); none if the network computes no loss in evaluation.
  std::optional<double> validation_loss() const { return validation_loss_; }
  /// The names of the metrics of the score, in order.
  std::vector<std::string> metric_names();

  /// Statistics of that kind of training; for batched training, evaluation is included.
  RunnerStats stats(Batching batching = Batching::batched) const;

 private:
  class LossSum;

  void require_samples() const;
  SampleNumbers next_minibatch(std::size_t samples);
  void prepare_after(SampleNumbers minibatch, std::size_t most_samples, Learner& learner) const;
  /// The places in a minibatch of the samples that this member computes, by micro-batch. If it has no samples, the only
  /// micro-batch is empty.
  std::vector<std::vector<std::size_t>> own_places(SampleNumbers minibatch) const;
  /// This member's share of a minibatch.
  struct Own {
    Learner::Loss loss;
    std::size_t samples = 0;
    std::int64_t labels = 0;
  };
  Own differentiate(Learner& learner, SampleNumbers minibatch);
  double mean_of_all(LossSum& own) const;
  void step(Learner& learner, std::size_t most_samples, Pass& pass, LossSum& loss);
  /// Whether the device's memory has a limit that two minibatches at once might exceed.
  bool room_is_scarce() const;
  /// Waits for pushed ops, so that their memory is free.
  void wait_for_room();
  /// Prepares a checkpoint, at all members. Returns the sum of their losses.
  double prepare_save();
  /// Takes the step for the present gradients.
  void take_step(std::size_t own_samples, std::size_t samples);
  /// Averages the parameters after steps that members took alone.
  void come_together();
  /// Takes the step for kept gradients, and calls come_together().
  void finish_steps();
  /// Whether finish_steps() has something to do, so that no checkpoint can be written.
  bool between_steps() const { return optimiser_.between_steps() || alone_ > 0; }
  void wait_for_steps();
  std::vector<Metric> scores();

  const Device device_;
  Workload& workload_;
  const TrainerOptions options_;
  Optimiser optimiser_;
  std::optional<DataParallel> parallel_;  // with other members
  std::vector<std::size_t> own_;          // the samples of the micro-batch that is differentiated
  std::optional<Averages> averages_;
  const std::unique_ptr<Learner> learner_;
  std::unique_ptr<Learner> unbatched_;  // made when first needed
  std::mt19937_64 random_;
  std::vector<std::size_t> order_;  // of training samples
  std::size_t next_ = 0;            // position in order_
  std::uint64_t epochs_ = 0;
  std::size_t alone_ = 0;                      // steps since the parameters of all members were equal
  Pass epoch_ = {};                            // of train_epoch()
  const std::unique_ptr<LossSum> epoch_loss_;  // of train_epoch()
  std::optional<double> validation_loss_;
};

[[deprecated("nothing is saved of what was learned about batching")]] inline std::vector<std::int64_t> saved_history(
    const SavedCheckpoint&) {
  return {};
}

}  // namespace windrow
