// A minibatch while a back end computes it: what all back ends share, and the stages that each of them implements.
//
// The host's back end computes on the host, Interpretation (interpretation.h) on any device.
#pragma once
#include "windrow/engine/requirements.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "windrow/batching/backend/layout.h"
#include "windrow/batching/backend/plan.h"
#include "windrow/batching/runner.h"
#include "windrow/memory/buffer.h"
#include "windrow/ops/device.h"
#include "windrow/ops/tensor.h"

namespace windrow {

class LayoutMemory;
class Origins;
class StepClock;
struct RunnerNotes;

/// The outcome of a minibatch. Waiting threads hold this, so they do not keep the minibatch's memory alive.
struct MinibatchEnd {
  explicit MinibatchEnd(const Device& device);

  const Buffer over;  ///< no bytes; the last op writes its variable
  double loss = 0;    ///< written by Execution::add_up_losses()
  /// The error text of a loss that is not finite, if the minibatch does not fail for it. Written by the ops that check
  /// losses; read by ops and threads that have waited for `over`.
  std::string not_finite;
  /// Whether its failure was reported to a caller. Written and read by waiting threads.
  std::atomic<bool> failure_told{false};
};

/// A vertex, by its type and its row.
struct VertexRow {
  std::size_t type;
  Index row;
};

/// Losses among the values of an output, which are to be finite; see Execution::check_losses.
struct LossCheck {
  struct Loss {
    std::int32_t row, vertex;  ///< of `values`; of the minibatch
    std::source_location from;
  };
  std::size_t output;
  Tensor values;
  std::vector<Loss> losses = {};
  /// What a loss that is not finite poisons, unless `skips`: then it is noted in the minibatch's end.
  std::vector<Var> poisoned = {};
  bool skips = false;
};

/// An owner. Made by the runner and shared by the ops of the minibatch; the last holder destroys it.
///
/// The variable memory() stands for all values of the vertices: an op that reads it after the last stage sees
/// everything that the stages wrote. A failure of a stage poisons it.
class Execution : public std::enable_shared_from_this<Execution> {
 public:
  /// Given by the runner; a back end hands them on.
  struct Options {
    std::uint64_t runner;                              ///< id of the runner
    std::int64_t number;                               ///< of the minibatch, for errors
    Index batch_rows;                                  ///< see RunnerOptions
    std::shared_ptr<StepClock> clock = nullptr;        ///< null where steps are not timed
    std::shared_ptr<const Origins> origins = nullptr;  ///< null where errors name vertices
    bool keeps_not_finite = false;                     ///< see NonFinite::skip
    bool combines_gradients = false;                   ///< with those of other members of a group, as they come
    std::shared_ptr<LayoutMemory> layouts = nullptr;   ///< takes the layout's memory back, unless null
    std::vector<Access> kept_gradients = {};           ///< reads of the gradients that it adds to
  };
  virtual ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // Stages. Each pushes ops and returns.
  struct Pushing {
    const RunnerOptions& options;
    RunnerStats& stats;
    std::source_location from;
  };
  /// The forward pass and the losses.
  virtual void forward(const Pushing& pushing) = 0;
  /// The same with the backward pass and the gradients of parameters.
  virtual void differentiate(const Pushing& pushing) = 0;
  /// After forward(): the backward pass and the gradients of parameters, for given gradients of outputs.
  virtual void backward(const Pushing& pushing) = 0;
  /// Copies an output into `out`, with the rows that `row_of` assigns to vertices; see Minibatch::output.
  virtual void collect(std::size_t output, std::vector<std::int32_t> row_of, const Tensor& out,
                       std::source_location from) = 0;
  /// Checks losses that the runner does not know, after forward() and before backward(). The error names the culprit.
  virtual void check_losses(LossCheck check, std::source_location from) = 0;

  Var memory() const { return memory_->var(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }
  /// The rows of a lookup's gradient, as a tensor that shares the buffer.
  Tensor rows_of(const Plan::Rows& rows) const;
  /// The index operands of op::sgd_rows for these rows, as tensors that share the buffer; empty if they are not in it.
  virtual std::vector<IntTensor> segments_of(const Plan::Rows&) const { return {}; }
  const Plan& plan() const { return *plan_; }
  const Layout& layout() const { return layout_; }
  const Device& device() const { return device_; }
  const Tensor& tensor(std::size_t number) const { return tensors_[number]; }
  std::uint64_t runner() const { return options_.runner; }
  const std::shared_ptr<MinibatchEnd>& end() const { return end_; }
  /// The tensors that forward passes read: their numbers, and their variables.
  std::vector<std::size_t> numbers_of_inputs() const;
  std::vector<Var> inputs() const;
  /// Reads of all parameters.
  std::vector<Access> parameters() const;
  /// Sets a tensor that is given after the forward computation was pushed. Called before ops that read it are pushed.
  void set_tensor(std::size_t number, const Tensor& tensor) { tensors_[number] = tensor; }
  /// Makes this gradient of a parameter add to its existing value. Called before ops that write it are pushed.
  void add_to(std::size_t tensor) { adds_to_[tensor] = 1; }
  bool adds_to(std::size_t tensor) const { return adds_to_[tensor] != 0; }
  const std::vector<Access>& kept_gradients() const { return options_.kept_gradients; }
  /// Of the runner, and used only by the thread that calls it.
  RunnerNotes& notes() const { return *notes_; }

  std::string name_of(const Step& step) const;
  /// The number of the output of that name, which exists.
  std::size_t number_of(const std::string& output) const;

 protected:
  Execution(const Device& device, std::shared_ptr<const Plan> plan, Layout layout, std::vector<Tensor> tensors,
            Options options);

  struct Range {
    Index begin, end;
  };
  /// The rows of that rate that belong to a range of vertices of a type.
  Range range(std::size_t type, Rate rate, Range vertices) const;

  /// A loss that is not finite.
  struct BadLoss {
    VertexRow vertex;
    std::string what;
    std::optional<std::size_t> output = {};  ///< none: a loss of the function
  };
  using ValuesOf = std::function<Matrix<const float>(std::size_t type, const Place& place)>;
  /// Adds up the losses of the function, and returns the first one that is not finite.
  std::optional<BadLoss> add_up_losses(const ValuesOf& values_of);
  /// The first of these losses that is not finite.
  std::optional<BadLoss> find_bad(const LossCheck& check, Matrix<const float> values) const;
  /// Throws Error with that text, or notes it in the end of the minibatch.
  void refuse(const std::string& text, bool note) const;

  std::string name() const;
  std::string name_of(VertexRow vertex) const;
  /// " at vertex 3 of graph 1", or " recorded at parser.cc:12".
  std::string origin_of(VertexRow vertex, const Step* step) const;

  const Device device_;
  const std::shared_ptr<const Plan> plan_;
  Layout layout_;  // fixed
  // By number in the plan. Written by the thread that pushes: gradients of outputs between the forward and the backward
  // pass, so ops of the forward pass must not look at those.
  std::vector<Tensor> tensors_;
  std::vector<char> adds_to_;
  const Options options_;
  const std::shared_ptr<MinibatchEnd> end_;
  const std::unique_ptr<RunnerNotes> notes_;
  // Set by the constructors of the back ends.
  std::shared_ptr<Buffer> memory_;  // with the values of all vertices
  std::vector<Index> offsets_;      // in elements, by region of the plan; only set for types that have rows
};

}  // namespace windrow
