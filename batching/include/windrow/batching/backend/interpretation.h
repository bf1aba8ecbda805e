// A minibatch on a device that has no back end of its own: its plan, step by step, through the device's kernels. Also
// the slow counterpart to which back ends are compared, and a base of those that compute segments their own way.
//
// All values, and all indices and inputs, lie in one buffer of the device's memory. The indices and inputs are packed
// on the host and copied at once. Each stage is one op on the device's lane, which issues the kernels of all its steps:
// the forward pass, and parts of the backward pass, after which gradients of parameters are complete.
// States are gathered from where they were computed (plans without slots).
#pragma once
#include "windrow/engine/requirements.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "windrow/batching/backend/execution.h"
#include "windrow/batching/backend/packed_layout.h"

namespace windrow {

/// The memory of a minibatch, to which a back end adds words.
struct Packing {
  const Layout& layout;
  const std::vector<Index>& offsets;  ///< of the regions, in elements from its beginning
  Index elements;                     ///< the words follow them
  PackedLayout& packed;
};

/// An owner; see Execution.
class Interpretation : public Execution {
 public:
  /// The plan must have been made by options of options_for().
  Interpretation(const Device& device, std::shared_ptr<const Plan> plan, Layout layout, std::vector<Tensor> tensors,
                 Options options);

  /// The options of plans that can be interpreted.
  static PlanOptions options_for(PlanOptions options);
  /// Throws MisuseError for an operator that the table has no kernel for.
  static void require_kernels(const Plan& plan, const KernelTable<float>& kernels);

  void forward(const Pushing& pushing) override;
  void differentiate(const Pushing& pushing) override;
  void backward(const Pushing& pushing) override;
  void collect(std::size_t output, std::vector<std::int32_t> row_of, const Tensor& out,
               std::source_location from) override;
  void check_losses(LossCheck check, std::source_location from) override;
  std::vector<IntTensor> segments_of(const Plan::Rows& rows) const override;

 protected:
  /// What a back end that computes segments its own way has in the memory of a minibatch.
  struct More {
    /// By type and number of the local: the rate of its rows if it needs memory. Plans without `fusion` have no locals.
    std::vector<std::vector<std::optional<Rate>>> locals = {};
    /// Whether steps gather by PackedLayout::children and consumers.
    bool gathers = true;
    /// Appends words to those that are copied to the device.
    std::function<void(const Packing&)> pack = {};
  };
  Interpretation(const Device& device, std::shared_ptr<const Plan> plan, Layout layout, std::vector<Tensor> tensors,
                 Options options, const More& more);

  /// Where a step runs: on rows of vertices of a type, or of their edges.
  struct At {
    std::size_t type;
    Rate rate;
    Range rows;
    Lane* lane;
  };
  enum class Passes { forward, backward };
  /// A pass, or a part of the backward pass: batches of the layout, the last one first. What precedes or
  /// follows all levels belongs to the first or the last stage of the pass.
  struct Stage {
    Passes of;
    Range batches;
  };
  /// Where the backward pass can be divided: at the number of batches that are left, or at a lower one.
  virtual Index stage_ends(Index batches_left) const { return batches_left; }
  // Called in ops of the device's lane. They issue kernels on it and return.
  /// Computes a stage, but for the steps of tensors.
  virtual void run_stage(const Stage& stage, Lane* lane);
  /// Computes a segment: by default, step by step.
  virtual void run(const Segment& segment, const At& at);
  /// Computes Phase::level or Phase::back_level of these batches: by default one after the other.
  virtual void run_levels(Phase phase, Range batches, Lane* lane);
  /// Computes a phase of some vertices.
  void run_rows(Phase phase, std::size_t type, Range vertices, Lane* lane);
  void run(const Step& step, const At& at);
  /// The rows of a place that belong to `at`; all rows if the place has the other rate.
  Matrix<float> place(const Place& place, const At& at) const;
  /// The same, of an operand that may also be an input or a tensor.
  Matrix<const float> operand(const Place& place, const At& at) const;
  /// The word of `packed()` at that position, in the device's memory.
  const std::int32_t* word(std::size_t at) const { return reinterpret_cast<const std::int32_t*>(data_ + values_) + at; }
  const PackedLayout& packed() const { return packed_; }
  /// The memory of the minibatch: elements(), with the regions, and then the words.
  float* data() const { return data_; }
  Index elements() const { return values_; }
  /// Of the layout, in one group.
  Index batch_count() const { return static_cast<Index>(layout_.batches.front().size()); }

 private:
  using TensorSteps = std::vector<const TensorStep*>;
  using ReadySteps = std::map<Index, TensorSteps, std::greater<>>;
  void place_values(const More& more);

  // Pushing.
  std::shared_ptr<Interpretation> self() { return std::static_pointer_cast<Interpretation>(shared_from_this()); }
  Var add_tag();
  void push(const Pushing& pushing, OpName name, std::vector<Access> accesses, std::function<void(Lane*)> issue);
  void push_start(const Pushing& pushing);
  void clear_missing(Lane* lane);
  void push_forward(const Pushing& pushing);
  TensorSteps push_backward(const Pushing& pushing);
  void push_stage(const Pushing& pushing, OpName name, const Stage& stage, std::vector<Access> accesses);
  Index batches_left(const TensorStep& step) const;
  ReadySteps ready_after() const;
  bool counts(const TensorStep& step) const;
  enum class Wanted { later, early };
  void push_tensors(const Pushing& pushing, const TensorSteps& steps, Wanted wanted = Wanted::later);
  void count(const Pushing& pushing, Passes passes) const;
  struct Check;
  std::shared_ptr<Check> push_losses(const Pushing& pushing);
  void push_end(const Pushing& pushing, const std::shared_ptr<Check>& check);
  void push_end_of_forward(const Pushing& pushing, const std::shared_ptr<Check>& check);
  void push_download(const std::shared_ptr<Check>& check, std::vector<Access> reads, std::source_location from);
  void push_verdict(const std::shared_ptr<Check>& check, std::vector<Access> refuses, LaneId lane,
                    std::source_location from);
  LaneId verdict_lane() const { return device_.copy_out.value_or(device_.lane); }
  std::string culprit(const Check& check) const;

  // Issuing, in ops of the lane.
  void run_all(Phase phase, Lane* lane);
  void run(const TensorStep& step, Lane* lane);
  void run_kernel(const Step& step, const At& at, Matrix<float> out);
  void gather(const Step& step, const At& at);
  void take_incoming(const Step& step, const At& at);
  void read_in_place(const Step& step, const At& at);
  void take_incoming_products(const Step& step, const At& at);
  void fill(Matrix<float> out, float constant, Write write, Lane* lane);
  void gather_pairs(const Operator& op, Matrix<const float> x, Matrix<const float> y, const PackedGather& gather,
                    Range rows, Matrix<float> out, Lane* lane);
  void gather_sum(Matrix<const float> from, const std::int32_t* words, const PackedGather& gather, Range rows,
                  Matrix<float> out, Write write, Lane* lane);
  void call(const Operator& op, KernelCall<float> call, Lane* lane) const;
  float* region(std::size_t type, std::size_t number) const {
    return data_ + offsets_[plan_->types[type].first_region + number];
  }

  Index values_ = 0;                               // elements; the words follow them in the buffer
  Index losses_ = 0;                               // elements at the beginning, with all losses in arenas
  std::vector<std::vector<Index>> local_offsets_;  // by type and number, in elements
  PackedLayout packed_;                            // fixed
  std::vector<Buffer> tags_;
  /// Poisoned if the losses of forward() are not finite; empty if memory() is.
  Var verdict_;
  float* data_ = nullptr;  // written by the first op
};

}  // namespace windrow
