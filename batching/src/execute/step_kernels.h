// The steps of a minibatch: their order, what each reads and writes, and the kernels that it calls.
#pragma once

#include <algorithm>
#include <cstdint>

#include "windrow/batching/internal/execution.h"

namespace windrow {

/// Calls visit(segment, where it runs) for the segments of a phase, batch by batch of at most Options::batch_rows.
template <class Visit>
void Execution::each_segment(const PhaseRows& rows, At at, Visit visit) const {
  const auto& segments = plan_->types[rows.type].phases[static_cast<std::size_t>(rows.phase)];
  if (segments.empty()) return;
  at.type = rows.type;
  for (Range batch{rows.begin, 0}; batch.begin < rows.end; batch.begin = batch.end) {
    batch.end = std::min(rows.end - batch.begin, options_.batch_rows) + batch.begin;
    for (const Segment& segment : segments) {
      at.rate = segment.rate;
      at.rows = range(rows.type, segment.rate, batch);
      visit(segment, at);
    }
  }
}

/// Calls visit(step, where it runs) for the steps of a segment, tile by tile.
template <class Visit>
void Execution::each_step(const Segment& segment, const At& at, Visit visit) const {
  const Index at_once = segment.fused ? segment.tile_rows : at.rows.end - at.rows.begin;
  At tile = at;
  for (; tile.rows.begin < at.rows.end; tile.rows.begin = tile.rows.end) {
    tile.rows.end = std::min(tile.rows.begin + at_once, at.rows.end);
    tile.first_in_tile = tile.rows.begin;
    for (const Step& step : segment.steps) visit(step, tile);
  }
}

/// Computes steps of vertices. A value, which refers to the execution.
class StepKernels {
 public:
  using At = Execution::At;
  using Range = Execution::Range;

  explicit StepKernels(const Execution& of) : of_(of) {}

  void run(const Step& step, const At& at) const;
  /// Runs a step that calls a kernel, and writes the result to `out` instead of the step's place.
  void run_kernel(const Step& step, const At& at, Matrix<float> out) const;
  void fill(Matrix<float> out, float value, Write write, Lane* lane) const;
  /// Adds the rows that `gather` names to rows of `out`.
  void gather_sum(Matrix<const float> from, const std::int32_t* words, const PackedGather& gather, Range rows,
                  Matrix<float> out, Lane* lane) const;
  /// The bytes that a step reads and writes, if it is not a product; see StepTimes.
  std::int64_t bytes_of(const Step& step, const At& at) const;
  Kernel<float> kernel_of(const Step& step) const;

 private:
  void run_where_present(const Step& step, const At& at, const Kernel<float>& kernel,
                         const KernelCall<float>& call) const;
  void call(const Operator& op, KernelCall<float> call, Lane* lane) const;
  /// For each row, calls visit(row, slot) with the slot for the state at the row's first consumer, or visit_none(row)
  /// if that consumer has no slot. Then calls visit_more(row, slot) for further consumers with slots, row by row and in
  /// order. `slots_of` selects states or gradients.
  using SlotsOf = std::vector<ChildSlots> TypePlan::*;
  template <class Visit, class VisitMore, class VisitNone>
  void each_slot(SlotsOf slots_of, std::size_t state, const At& at, Visit visit, VisitMore visit_more,
                 VisitNone visit_none) const;
  void scatter(const Step& step, const At& at) const;
  void gather(const Step& step, const At& at) const;
  void add_incoming(const Step& step, const At& at) const;
  void gather_incoming(const Step& step, const At& at) const;
  void read_in_place(const Step& step, const At& at) const;
  void take_incoming_products(const Step& step, const At& at) const;
  void gather_pairs(const Step& step, Matrix<const float> x, Matrix<const float> y, const PackedGather& gather,
                    const At& at, Matrix<float> out) const;

  const Execution& of_;
};

/// Computes steps of tensors, which belong to no vertex, such as gradients of parameters. A value, which refers to the
/// execution.
class TensorSteps {
 public:
  explicit TensorSteps(Execution& of) : of_(of) {}

  void run(const TensorStep& step, Lane* lane) const;
  /// Whether run_each() may compute the step: on a device whose kernel sums rows for several steps at once.
  bool may_be_one_of_each(const TensorStep& step) const;
  /// Computes steps of one operator. Steps may add to the result of an earlier one.
  void run_each(const std::vector<const TensorStep*>& steps, Lane* lane) const;
  /// For the gradient of a parameter that is computed in blocks of columns: begins the tensor, then runs the step for
  /// one block.
  void begin_in_blocks(std::size_t tensor) const;
  void run(const TensorStep& step, Execution::Range columns) const;

 private:
  void run_timed(const TensorStep& step, Matrix<float> tensor, Lane* lane) const;
  void run(const TensorStep& step, Matrix<float> tensor, Lane* lane) const;
  Execution::At all_rows(const TensorStep& step, Lane* lane) const;

  Execution& of_;
};

}  // namespace windrow
