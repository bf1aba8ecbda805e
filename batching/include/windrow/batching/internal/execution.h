// A minibatch while it is computed. Start here to see what its ops do; execute/push.h pushes them.
//
// All values of its vertices lie in one buffer. On the host (Ops::side_by_side), its work is cut into ops that run
// concurrently. Small steps run over tiles of rows, and indices and inputs are read from the layout. On a device
// (Ops::in_order), each pass is an op on the device's lane, or a few ops, which issue a kernel for each step; indices
// and inputs are packed, and copied to the device at once. The interpreter computes this way on any device. A back end
// for a device derives from Execution and overrides how segments of steps are computed.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "windrow/batching/internal/layout.h"
#include "windrow/batching/internal/minibatch_memory.h"
#include "windrow/batching/internal/plan.h"
#include "windrow/batching/runner.h"
#include "windrow/memory/buffer.h"
#include "windrow/ops/device.h"
#include "windrow/ops/tensor.h"

namespace windrow {

class LayoutMemory;
class Origins;
class Scratch;
class StepClock;
class StepLap;
struct RunnerNotes;

/// The outcome of a minibatch. Waiting threads hold this, so they do not keep the minibatch's memory alive.
struct MinibatchEnd {
  explicit MinibatchEnd(const Device& device);

  const Buffer over;  ///< no bytes; the last op writes its variable
  double loss = 0;    ///< written by the op that adds the losses up
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

/// Values of an output that are losses and must be finite; see Execution::check_losses.
struct LossCheck {
  struct Loss {
    std::int32_t row, vertex;  ///< of `values`; of the minibatch
    std::source_location from;
  };
  std::size_t output;
  Tensor values;
  std::vector<Loss> losses = {};
  /// The variables that a loss that is not finite poisons. With `skips` it is noted in the minibatch's end instead.
  std::vector<Var> poisoned = {};
  bool skips = false;
};

/// Some vertices of a type, and a phase whose steps run over them.
struct PhaseRows {
  Phase phase;
  std::size_t type;
  Index begin, end;
  Index batch = -1;  ///< for a phase of levels: the number of its batch in the group's schedule
};

/// Owns the memory of the minibatch. Made by the runner and shared by the minibatch's ops; the last holder destroys it.
///
/// The variable memory() stands for all values of the vertices: an op that reads it after the last stage sees
/// everything that the stages wrote. A failure of a stage poisons it. The first op overwrites it. In order, each stage
/// mutates it. Side by side, only the last op of a stage mutates it. Each earlier op reads it, writes its own variable,
/// and reads the variables of the ops that it must wait for (execute/pieces.h). Ops that may run concurrently write
/// disjoint parts of the buffer. An op of an early gradient reads only the variables of such ops, so the last op does
/// not wait for it; it holds the execution, which owns the buffer.
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
    bool combines_gradients = false;                   ///< a group combines each gradient as soon as it is computed
    std::shared_ptr<LayoutMemory> layouts = nullptr;   ///< takes the layout's memory back, unless null
    std::vector<Access> kept_gradients = {};           ///< reads of the gradients that it adds to
  };
  using Ops = MinibatchMemory::Ops;  ///< see above

  /// In order, the plan must have been made by options of options_for(). `needed`: as LoweredPlan::needed() returned;
  /// empty for all tensors. Makes the layout's memory, unless it was made ahead.
  Execution(const Device& device, std::shared_ptr<const Plan> plan, Layout layout, std::vector<Tensor> tensors,
            Options options, Ops ops = Ops::in_order, std::vector<char> needed = {});
  virtual ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  /// The options of plans that are computed in order.
  static PlanOptions options_for(PlanOptions options);
  [[deprecated("lower plans by with_kernels()")]] static void require_kernels(const Plan& plan,
                                                                              const KernelTable<float>& kernels) {
    with_kernels(plan, kernels);
  }

  // Stages. Each pushes ops and returns.
  struct Pushing {
    const RunnerOptions& options;
    RunnerStats& stats;
    std::source_location from;
  };
  /// The forward pass and the losses.
  void forward(const Pushing& pushing);
  /// The same with the backward pass and the gradients of parameters.
  void differentiate(const Pushing& pushing);
  /// After forward(): the backward pass and the gradients of parameters, for given gradients of outputs.
  void backward(const Pushing& pushing);
  /// Copies an output into `out`, with the rows that `row_of` assigns to vertices; see Minibatch::output.
  void collect(std::size_t output, std::vector<std::int32_t> row_of, const Tensor& out, std::source_location from);
  /// Checks losses that the runner does not know, after forward() and before backward(). The error names the culprit.
  void check_losses(LossCheck check, std::source_location from);

  Var memory() const { return memory_->var(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }
  /// The rows of a lookup's gradient, as a tensor that shares the buffer.
  Tensor rows_of(const Plan::Rows& rows) const;
  /// The index operands of op::sgd_rows for these rows, as tensors that share the buffer; empty if the buffer lacks
  /// them.
  std::vector<IntTensor> segments_of(const Plan::Rows& rows) const;
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
  /// Belongs to the runner, and is used only by the thread that calls the runner.
  RunnerNotes& notes() const { return *notes_; }
  /// The number of the output of that name, which must exist.
  std::size_t number_of(const std::string& output) const;

 protected:
  struct Range {
    Index begin, end;
  };
  /// Where a step runs: on rows of vertices of a type, or of their edges.
  struct At {
    std::size_t type = 0;
    Rate rate = Rate::vertices;
    Range rows = {0, 0};
    Lane* lane = nullptr;     ///< of the op; null on the host
    float* tile = nullptr;    ///< side by side: the memory of values in tiles
    Index first_in_tile = 0;  ///< the first row in that memory
    StepLap* lap = nullptr;   ///< measures steps, unless null
  };

  // Overridden by back ends, in order. Called in ops of the device's lane; they issue kernels on it and return.
  /// Computes a pass, or a part of the backward pass.
  virtual void run_stage(const std::vector<PhaseRows>& stage, const At& at);
  /// Computes a segment: by default, step by step.
  virtual void run(const Segment& segment, const At& at);
  /// Where the backward pass can be divided: at this number of remaining batches, or at the lower number that is
  /// returned.
  virtual Index stage_ends(Index batches_left) const { return batches_left; }

  /// Computes a phase of some vertices, segment by segment. Of `at`, it uses the lane and the tile.
  void run(const PhaseRows& rows, const At& at);
  void run(const Step& step, const At& at);
  /// The rows of a place that belong to `at`; all rows if the place has the other rate.
  Matrix<float> place(const Place& place, const At& at) const;
  /// The same, of an operand that may also be an input or a tensor.
  Matrix<const float> operand(const Place& place, const At& at) const;
  /// The word of `packed()` at that position, in the device's memory.
  const std::int32_t* word(std::size_t at) const { return words_ + at; }
  const PackedLayout& packed() const { return placed_.packed; }
  /// The memory of the minibatch: elements(), with the regions, and then the words.
  float* data() const { return data_; }
  Index elements() const { return placed_.elements; }
  /// The number of batches of the layout, which has one group.
  Index batch_count() const { return static_cast<Index>(layout_.batches.front().size()); }

  const Device device_;
  const std::shared_ptr<const Plan> plan_;
  Layout layout_;  // fixed
  // By number in the plan. Written by the thread that pushes. It sets gradients of outputs between the forward and the
  // backward pass, so ops of the forward pass must not read these.
  std::vector<Tensor> tensors_;
  const Options options_;

 private:
  friend class Losses;
  friend class PostMortem;
  friend class Push;
  friend class StepKernels;
  friend class TensorSteps;

  bool in_order() const { return ops_ == Ops::in_order; }
  /// Whether the minibatch needs a tensor.
  bool needs(std::size_t tensor) const { return needed_.empty() || needed_[tensor] != 0; }
  bool adds_to(std::size_t tensor) const { return adds_to_[tensor] != 0; }
  /// Makes a variable for an op of the minibatch.
  Var add_op_var();

  // Memory.
  void take_memory(Lane* lane);
  void clear_missing(Lane* lane) const;
  float* region(std::size_t type, std::size_t number) const {
    return data_ + placed_.offsets[plan_->types[type].first_region + number];
  }
  /// The rows of that rate that belong to a range of vertices of a type.
  Range range(std::size_t type, Rate rate, Range vertices) const;
  At all_rows(std::size_t type, Rate rate, Lane* lane) const {
    return {.type = type, .rate = rate, .rows = {0, layout_.count(type, rate)}, .lane = lane};
  }
  /// In order: how an output of so many rows is gathered.
  struct Gathers {
    std::vector<PackedLayout::Source> sources;
    PackedLayout::Words words;
  };
  Gathers gathers_of(std::size_t output, const std::vector<std::int32_t>& row_of, Index count) const;
  void copy_output(std::size_t output, const std::vector<std::int32_t>& row_of, Matrix<float> out) const;

  // Steps.
  void run_op(const std::vector<PhaseRows>& stage, Lane* lane);
  template <class Visit>
  void each_segment(const PhaseRows& rows, At at, Visit visit) const;
  template <class Visit>
  void each_step(const Segment& segment, const At& at, Visit visit) const;
  // Names, for errors.
  std::string name() const;
  std::string name_of(const Step& step) const;
  std::string name_of(VertexRow vertex) const;
  /// " at sample 1, vertex 3", or " recorded at parser.cc:12".
  std::string origin_of(VertexRow vertex, const Step* step) const;
  std::shared_ptr<Execution> self() { return shared_from_this(); }

  const Ops ops_;
  const std::vector<char> needed_;
  std::vector<char> adds_to_;
  const std::shared_ptr<MinibatchEnd> end_;
  const std::unique_ptr<RunnerNotes> notes_;
  std::vector<Buffer> op_vars_;           // without bytes: own the variables of add_op_var()
  const MinibatchMemory& placed_;         // the layout's
  const std::shared_ptr<Buffer> memory_;  // with the values of all vertices, and in order with the words
  const std::unique_ptr<Scratch> tiles_;  // side by side
  // In order: poisoned if the losses of forward() are not finite; empty if memory() is.
  Var verdict_;
  // Written by take_memory():
  float* data_ = nullptr;
  const std::int32_t* words_ = nullptr;
};

using Interpretation [[deprecated("derive from Execution")]] = Execution;

}  // namespace windrow
