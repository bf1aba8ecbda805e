// Optimisers: steps that change parameters along their gradients. Start here.
//
//   windrow::Optimiser optimiser(parameters, windrow::Method::adam(), {.rate = 1e-3, .clip_norm = 5});
//   for (...) {
//     windrow::Minibatch minibatch = runner.differentiate(graphs);
//     optimiser.step(graphs.size());  // the loss is a sum over so many samples
//   }
//
// Contract
//   Steps    step() pushes ops and returns; nothing waits. Methods equal PyTorch's of the same name, with the same
//            defaults; see Method. A parameter that is frozen, or that the loss does not depend on, is left alone.
//   Numbers  An op writes the learning rate and the other numbers of a step to a tensor. So steps of a captured graph,
//            or in the body of a Static, continue the count and follow the schedule. The same calls give the same bits
//            with every policy and number of workers.
//   Recorded The recording of a Static keeps which parameters were frozen, and the options of set(). Calls after a
//            change of these need another StaticInputs::key.
//   Errors   As for Parameters: a step that uses a failed gradient fails, and poisons the values that depend on it.
//            With NonFinite::skip a step is skipped as a whole, and the schedule does not count it.
//   Sharded  With DataParallelOptions::sharded, it takes the steps of this member's parameters and exchanges the new
//            values with the other members. clip_norm then limits the norm of all members' gradients.
//   Life     Optimiser and parameters may end in any order; without its parameters, or their engine, an optimiser may
//            only be destroyed.
//   Threads  One at a time, together with the parameters.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "windrow/batching/parameters.h"
#include "windrow/ops/internal/step_numbers.h"
#include "windrow/ops/operator.h"
#include "windrow/training/learning_rate.h"

namespace windrow {

struct Method;
class Shards;
struct StepCounts;

struct OptimiserOptions {
  std::optional<LearningRate> rate = {};  ///< without one, Method::rate
  double penalty = 0;  ///< adds penalty * value to the gradient: the gradient of an L2 term; PyTorch's weight_decay
  double decay = 0;    ///< multiplies values by 1 - rate * decay before the step: AdamW's weight_decay
  /// clip_norm: if the norm of all gradients together exceeds it, they are scaled down (Pascanu et al. 2013).
  /// clip_value: the largest magnitude of an element after that; larger ones are clipped. A norm that is not finite
  /// makes parameters NaN, so the next loss fails; see NonFinite::skip.
  double clip_norm = std::numeric_limits<double>::infinity(), clip_value = std::numeric_limits<double>::infinity();
  /// The number of minibatches per step: step() takes a step at every so many calls.
  std::uint64_t accumulate = 1;
  /// How a step treats the rows of a table that no lookup used.
  enum class Tables {
    /// They do not change, nor do their states; decay does not apply. A step takes time only for the rows used. Like
    /// PyTorch's SparseAdam, except that adam's bias correction counts the steps of each row. (In PyTorch, the first
    /// step of a row that is first used late is 3 times as large.) This holds for tables that are only looked up. A
    /// table that is also used as a whole, such as tied word vectors, has a dense gradient, and the step uses its
    /// zeros. If a minibatch only looks rows up, the vertices that the runner or lazy graph has seen decide whether the
    /// gradient is dense.
    lazy,
    /// They take a step with a gradient of zero, as with a dense gradient.
    dense,
  } tables = Tables::lazy;
};

/// Options of one parameter.
struct ParameterOptions {
  double rate_factor = 1;  ///< its learning rate is multiplied by this
  double penalty_factor = 1, decay_factor = 1;
};

/// A tensor that an optimiser keeps for a parameter.
struct OptimiserTensor {
  std::string name;  ///< such as "adam.0/embedding"
  Tensor tensor;
};

/// An owner.
class Optimiser {
 public:
  /// Throws MisuseError for options out of range.
  Optimiser(Parameters& parameters, Method method, OptimiserOptions options = {});
  ~Optimiser();
  Optimiser(const Optimiser&) = delete;
  Optimiser& operator=(const Optimiser&) = delete;

  /// Throws MisuseError for a parameter of another set, or factors that are negative or not finite.
  void set(const Parameter& parameter, const ParameterOptions& options);
  /// From the next step on, multiplies the schedule's rate by `factor`; see Plateau. Throws MisuseError unless it is 0
  /// or more.
  void scale_rate(double factor);

  /// Pushes a step along the gradients of the last minibatch, whose loss is a sum over `samples` samples: gradients are
  /// divided by their number. In a group of members, these are the samples of all, which DataParallel::combine()
  /// returns. With `accumulate`, only every so many-th call takes a step; the others keep the gradients. Throws
  /// MisuseError for 0 samples. If the update is sharded among several members, throws it unless
  /// DataParallel::combine() was called for this step. In the body of a Static, throws it with `accumulate`, a sharded
  /// update, or NonFinite::skip.
  void step(std::size_t samples, std::source_location from = std::source_location::current());
  [[deprecated("use step(samples), with the number of samples of the minibatch")]] void step(
      std::source_location from = std::source_location::current()) {
    step(1, from);
  }

  /// Whether the next call of step() takes a step instead of only keeping the gradients.
  bool takes_step() const;

  /// Pushes the step for which gradients are kept, if there are some; see OptimiserOptions::accumulate. Throws as
  /// step().
  void finish(std::source_location from = std::source_location::current());

  /// The state of the optimiser besides its tensors. A value.
  struct Progress {
    std::uint64_t steps = 0;  ///< that have been taken and not skipped
    double rate_scale = 1;    ///< see scale_rate()
    /// By parameter: the number of steps that have changed it. Only parameters for which it differs from `steps`.
    std::map<std::string, std::uint64_t> steps_of = {};
  };
  /// Waits for the steps pushed so far.
  Progress progress() const;
  /// The learning rate of the next step. Waits likewise.
  double rate() const;
  /// The norm of all gradients together in the last step, after division by the number of samples and before clipping,
  /// as PyTorch's clip_grad_norm_ returns it. Also for steps of a captured graph or a replayed Static. Not finite if
  /// the norm is not; 0 if no parameter had a gradient. Waits for that step. Throws OpError if a gradient failed, and
  /// MisuseError before the first step and without OptimiserOptions::clip_norm, since the norm is not computed then.
  double last_norm(std::source_location from = std::source_location::current()) const;
  /// Whether gradients are kept for a step that is still to come; see OptimiserOptions::accumulate.
  bool between_steps() const;

  const Method& method() const;
  /// The tensors that it keeps: for checkpoints; see checkpoint.h.
  std::vector<OptimiserTensor> tensors() const;
  /// The same, but with a sharded update, rank 0 returns the tensors of all members. All members call it at the same
  /// time. It waits until rank 0 has the tensors. At rank 0 it throws OpError if a step of a member failed.
  std::vector<OptimiserTensor> tensors_of_all() const;
  /// Continues from a checkpoint: makes the tensors of these names, which the caller sets, and continues the count of
  /// steps. Call it before the first step. With a sharded update, it makes those of this member's parameters only.
  /// Throws MisuseError for a name that tensors() cannot have.
  void restore(const Progress& progress, const std::vector<std::string>& names);

 private:
  friend class DataParallel;
  bool is_of(const Parameters& parameters) const;
  /// Precondition: the shards are of the same parameters.
  void shard(std::shared_ptr<const Shards> shards);

  class Impl;
  const std::unique_ptr<Impl> impl_;
};

/// How a step follows from a gradient. A value.
///
/// To write one of your own, define an operator of the form of op::adam_step (operators.h), add its kernel to the
/// device's table, and name it here: examples/own_optimiser.cc.
struct Method {
  std::string name;      ///< of the state in checkpoints
  const Operator* step;  ///< for a gradient of the parameter's shape
  /// For the gradient of some rows of a table; null: such gradients are made dense. If the operator has a third
  /// operand, as op::adam_step_rows does, that is the number of steps that each row of the table has taken.
  const Operator* step_rows = nullptr;
  float initial = 0;  ///< the value of all states before the first step
  /// Sets the members from StepNumbers::first on, for a step of the parameter counted from 1; null: they stay as they
  /// are. Steps that lack the parameter, or that were skipped, do not count.
  std::function<void(std::uint64_t step, StepNumbers& numbers)> coefficients = nullptr;
  double rate = 1e-3;  ///< the learning rate if OptimiserOptions has none: that of PyTorch

  static Method sgd();
  struct Momentum {
    double momentum = 0.9;
    enum class Form { heavy_ball, nesterov } form = Form::heavy_ball;
  };
  /// Sutskever et al. 2013, in PyTorch's form.
  static Method momentum(Momentum options);
  static Method momentum() { return momentum(Momentum()); }
  struct Adagrad {
    double initial = 0, epsilon = 1e-10;
  };
  /// Duchi et al. 2011. Its default rate is 1e-2.
  static Method adagrad(Adagrad options);
  static Method adagrad() { return adagrad(Adagrad()); }
  struct RmsProp {
    double smoothing = 0.99, epsilon = 1e-8;
  };
  /// Tieleman and Hinton 2012; without momentum. Its default rate is 1e-2.
  static Method rmsprop(RmsProp options);
  static Method rmsprop() { return rmsprop(RmsProp()); }
  struct Adam {
    double first = 0.9, second = 0.999, epsilon = 1e-8;
  };
  /// Kingma and Ba 2015. With OptimiserOptions::decay it is AdamW (Loshchilov and Hutter 2019).
  static Method adam(Adam options);
  static Method adam() { return adam(Adam()); }
};

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
//   Errors   If an update reads a failed parameter, it poisons the average of this parameter.
//   Life     As for Optimiser.
//   Replays  Updates of a captured graph, or in the body of a Static, continue the count. All parameters must exist
//            when the averages are constructed, or before an update outside of a capture.
//   Threads  One at a time, together with the parameters.

struct AveragesOptions {
  /// An update moves the average towards the value by 1 - decay of their difference. With 0, the average gives all
  /// updates the same weight (Polyak and Juditsky 1992). At least 0, less than 1. The first update of a parameter sets
  /// its average.
  double decay = 0.999;
};

/// An owner.
class Averages {
 public:
  /// Throws MisuseError for options out of range.
  explicit Averages(Parameters& parameters, AveragesOptions options = {});
  Averages(const Averages&) = delete;
  Averages& operator=(const Averages&) = delete;

  /// Pushes ops that update the averages with the current values. Throws MisuseError while swapped.
  void update(std::source_location from = std::source_location::current());
  struct Progress {
    std::uint64_t updates = 0;  ///< those of the parameter that has had the most
    /// The updates of parameters that have had fewer.
    std::map<std::string, std::uint64_t> updates_of = {};
  };
  /// Waits for the updates pushed so far.
  Progress progress() const;
  /// The same as progress().updates.
  std::uint64_t updates() const { return progress().updates; }
  /// Pushes ops that exchange the values of the parameters with the averages; does nothing before the first update.
  void swap(std::source_location from = std::source_location::current());

  /// For checkpoints, by the names of the parameters; empty before the first update. Throws MisuseError while swapped.
  std::vector<OptimiserTensor> tensors() const;
  /// Continues from these numbers of updates, for the parameters that exist; the caller sets the tensors.
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
