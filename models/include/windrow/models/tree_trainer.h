// Trains a Tree-LSTM to label the vertices of trees.
//
//   windrow::TreeTrainer trainer(host, windrow::read_treebank("train.txt"), {.hidden = 128, .embedding = 128});
//   windrow::TreeTrainer::Pass pass = trainer.train();
//   windrow::TreeAccuracy accuracy = trainer.evaluate(trainer.prepare(windrow::read_treebank("dev.txt")));
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "windrow/batching/runner.h"
#include "windrow/models/tree_lstm.h"
#include "windrow/models/treebank.h"

namespace windrow {

struct TreeTrainerOptions {
  Index hidden = 256, embedding = 256;
  std::size_t batch = 64;  ///< trees a minibatch
  /// Of gradient descent on the sum of the losses over the vertices, divided by the trees of the minibatch.
  double rate = 0.1;       ///< 0 or more
  std::uint64_t seed = 1;  ///< of initial values and of the order of trees
  SchedulePolicy schedule = SchedulePolicy::level;
};

/// Shares, among the vertices that have a label, of those whose label has the highest score.
struct TreeAccuracy {
  double root, all;
};

/// An owner; must end before the engine of its device.
///
/// The same seed and the same calls give the same bits, whatever the policy and the number of workers.
/// Errors: as for Runner; wrong options, and no trees, throw MisuseError, parameters beyond any memory OutOfMemory.
/// Threads: one at a time.
class TreeTrainer {
 public:
  TreeTrainer(const Device& device, const std::vector<LabelledTree>& trees, TreeTrainerOptions options);

  /// How vertices are computed: in batches, or for comparison one vertex at a time by the same kernels.
  enum class Batching { batched, unbatched };
  struct Pass {
    std::size_t trees = 0;
    std::int64_t vertices = 0;
    double loss = 0;  ///< a vertex, before the step of its minibatch; 0 of no vertices
    double seconds = 0;
  };
  /// Trains on the next trees in an order that is drawn for each time through all of them. Returns when all is done;
  /// throws OpError if a loss is not finite; then the parameters are poisoned, and the trainer is of no more use.
  Pass train(std::size_t trees, Batching batching = Batching::batched);
  /// On each tree once, in a new order.
  Pass train();

  /// Trees as input for evaluate() of the trainer that prepared them. A value.
  class Trees {
   private:
    friend class TreeTrainer;
    std::vector<InputGraph> graphs_;
    std::vector<std::vector<std::int32_t>> labels_;  // of the vertices of each
  };
  /// Words that the trainer's own trees do not have are unknown.
  Trees prepare(const std::vector<LabelledTree>& trees) const;
  TreeAccuracy evaluate(const Trees& trees);

  const Parameters& parameters() const { return parameters_; }
  /// Of training of that kind; of evaluation too if batched.
  RunnerStats stats(Batching batching = Batching::batched) const;
  /// Floating point operations of products in the forward computation of all trees, a tree. Of binary trees, as
  /// read_treebank() gives them.
  double flops_a_tree() const;

 private:
  std::vector<const InputGraph*> next_minibatch(std::size_t trees);

  const Device device_;
  const TreeTrainerOptions options_;
  const Vocabulary vocabulary_;
  Parameters parameters_;
  const TreeLstm model_;
  const VertexFunction function_;
  const Trees trees_;
  Runner runner_;
  std::optional<Runner> unbatched_;  // made when first asked for
  std::mt19937_64 random_;
  std::vector<const InputGraph*> order_;
  std::size_t next_ = 0;  // in order_
};

}  // namespace windrow
