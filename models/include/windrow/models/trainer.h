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
  /// Computes what a member has of a minibatch in so many parts, one after the other, which takes the memory of the
  /// largest part. Samples are dealt out among the parts by vertices. The steps are the same, up to rounding. 1 to
  /// 2^24.
  std::size_t micro_batches = 1;
  Method method = Method::sgd();
  OptimiserOptions optimiser = {.rate = 0.1};  ///< for the sum of the losses, divided by the number of samples
  /// The scores are those of averages of the parameters over steps, if this is set.
  std::optional<AveragesOptions> averages = {};
  std::uint64_t seed = 1;  ///< of the order of samples
  /// Trains together with the trainers of the other members, which have the same workload and options but this one.
  /// Each minibatch is dealt out among them, by vertices. They make the same calls, except save().
  std::optional<Communicator> group = {};
  DataParallelOptions data_parallel = {};  ///< the trainer sets `sharded`
  /// Shards the update over the group: see DataParallelOptions::sharded. Not with local steps.
  bool sharded = false;
  /// Above 1: each member takes steps along its own gradients, and after so many steps, and at the end of an epoch, the
  /// parameters of all are replaced by their means; see DataParallel::average().
  std::size_t local_steps = 1;
  RunnerOptions runner = {};
  bool score_training = false;  ///< deprecated: has no effect
  /// Called with the mean loss per label of each minibatch that was trained on, in order, when it was waited for.
  std::function<void(double loss)> each_loss = {};
};

/// The numbers of the training samples of a minibatch that each member of a group computes: they are dealt out by
/// vertices, as deal() does.
std::vector<std::vector<std::size_t>> deal_minibatch(const Workload& workload, SampleNumbers minibatch, int members);

/// An owner; must end before the workload.
///
/// The same seeds and the same calls give the same bits, with every policy and number of workers.
/// Memory: if that of the device has a limit (MemoryUse::limit), a minibatch may begin before the last one has ended
/// only if less than half of the limit has ever been live. Errors: as for Runner. The constructor throws MisuseError
/// for options out of range; training throws it without training samples. Threads: one at a time.
class Trainer {
 public:
  Trainer(const Device& device, Workload& workload, TrainerOptions options);
  ~Trainer();

  /// How samples are computed: in batches or, for comparison, one vertex at a time with the same kernels.
  enum class Batching { batched, unbatched };
  /// What was trained, and the results. A value.
  struct Pass {
    std::size_t samples = 0;
    std::int64_t units = 0, vertices = 0, labels = 0;
    double flops = 0;  ///< forward, by the workload's formula
    double loss = 0;   ///< mean per label, before the step of its minibatch; 0 without labels
    double seconds = 0;
    std::vector<Metric> metrics = {};  ///< deprecated: always empty

    double units_per_second() const { return static_cast<double>(units) / seconds; }
  };
  /// Trains on the next `samples` samples, in an order that is drawn anew for each epoch. Returns when everything has
  /// finished. Throws OpError if a loss is not finite, with a NotFiniteError at its root; the parameters are poisoned
  /// then, and the workload cannot be used any more.
  Pass train(std::size_t samples, Batching batching = Batching::batched);
  /// Trains for one epoch: on each sample once, in a new order.
  Pass train();
  enum class Then { go_on, stop };
  /// Returns the decision of the group, if this member wants `own`: all members stop if one of them wants to. All
  /// members call it, and it waits for them.
  Then agree(Then own) const;
  /// Called after each step but the last one of an epoch, with what was trained in it so far; the loss is that of the
  /// minibatches that have finished. It may call save().
  using Between = std::function<Then(const Pass& so_far)>;
  /// Trains to the end of the epoch: of the one that was stopped, or that a checkpoint was in; otherwise of a new one.
  /// In a group, all members stop after a step if `between` of one of them says so; all pass one, or none does. Returns
  /// what was trained in all of it.
  Pass train_epoch(const Between& between);
  std::uint64_t epochs() const { return epochs_; }                                   ///< that have ended
  std::uint64_t minibatches() const { return workload_.parameters->minibatches(); }  ///< trained on so far
  /// Call it after train_epoch() has thrown: the minibatch whose loss was waited for, or else the last one that began.
  std::uint64_t failed_minibatch() const;
  bool in_epoch() const { return next_ < order_.size(); }

  /// Writes a checkpoint of everything that the results of later steps depend on. What has been learned about batching
  /// is not written: this trainer forgets it, see Learner::forget(). The step is the number of minibatches so far. The
  /// document gets the records "training" and "trainer" beside those it has. Waits. Throws as Snapshot and
  /// CheckpointWriter do.
  /// In a group, rank 0 saves, and the other members call help_save() at the same time. A trainer that resumes in a
  /// group of another size keeps the order of samples, but does not give the same bits.
  void save(CheckpointWriter& writer, Record document = {});
  /// Sends rank 0 what its checkpoint needs of this member.
  void help_save();
  /// Resumes from a checkpoint of a trainer with the same options, workload and data. Later steps give the same bits as
  /// in the trainer that saved it. Call it before any training. Throws FileError for a checkpoint of something else;
  /// the trainer cannot be used after that.
  void resume(const SavedCheckpoint& checkpoint);
  /// Trains unbatched, for comparison: on samples with about 10,000 vertices or 2e10 floating point operations,
  /// whichever is less, but at least one sample.
  Pass train_some_unbatched();

  /// Of all steps; its parameters are the workload's.
  Optimiser& optimiser() { return optimiser_; }

  /// The score on the validation set.
  std::vector<Metric> evaluate();
  /// The mean loss per label that the last evaluate() found; none if the network computes no loss then.
  std::optional<double> validation_loss() const { return validation_loss_; }
  /// The names of the metrics of the score, in order.
  std::vector<std::string> metric_names();

  /// Statistics of that kind of training; for batched training, evaluation is included.
  RunnerStats stats(Batching batching = Batching::batched) const;

 private:
  class LossSum;

  void require_samples() const;
  SampleNumbers next_minibatch(std::size_t samples);
  /// The places of those samples of a minibatch that this member computes, by micro-batch. The first one is empty if
  /// there are none.
  std::vector<std::vector<std::size_t>> own_places(SampleNumbers minibatch) const;
  /// What this member has of a minibatch.
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
  /// Waits for what is pushed, to have the memory.
  void wait_for_room();
  /// Prepares a checkpoint, at all members. Returns the sum of their losses.
  double prepare_save();
  /// Takes the step for the gradients that are there.
  void take_step(std::size_t own_samples, std::size_t samples);
  /// Ends the steps that members take alone.
  void come_together();
  /// Takes the step for gradients that are kept, and ends those that members take alone.
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
