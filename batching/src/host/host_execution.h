// A minibatch on the host: its memory, and the functions that its ops run. Start here; push.h pushes the ops.
//
// The memory is one buffer. The first op overwrites the buffer's variable and the last op mutates it, so an op that
// reads the variable after that sees everything that was written. Each op between them reads the buffer's variable,
// writes a variable of its own, and reads the variables of the ops that it must wait for (pieces.h). Ops that may run
// concurrently write disjoint parts of the buffer. An op of an early gradient reads only the variables of such ops, so
// that the last op does not wait for it; it holds the execution, which owns the buffer.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/host_plan.h"
#include "host/pieces.h"
#include "host/scratch.h"
#include "host/step_clock.h"
#include "layout/layout_memory.h"
#include "layout/looked_up.h"
#include "windrow/batching/backend/execution.h"
#include "windrow/batching/backend/layout.h"
#include "windrow/batching/parameters.h"
#include "windrow/memory/buffer.h"
#include "windrow/ops/device.h"
#include "windrow/ops/tensor.h"

namespace windrow {

/// An owner; see Execution.
class HostExecution final : public Execution {
 public:
  HostExecution(const Device& device, std::shared_ptr<const Plan> plan, std::shared_ptr<const HostPlan> lowered,
                Layout layout, std::vector<Tensor> tensors, std::vector<char> needed, Options options);

  void forward(const Pushing& pushing) override;
  void differentiate(const Pushing& pushing) override;
  void backward(const Pushing& pushing) override;
  void collect(std::size_t output, std::vector<std::int32_t> row_of, const Tensor& out,
               std::source_location from) override;
  void check_losses(LossCheck check, std::source_location from) override;

  const HostPlan& lowered() const { return *lowered_; }
  /// See needed.h.
  bool needs(std::size_t tensor) const { return needed_[tensor] != 0; }
  /// Makes a variable for an op of the minibatch.
  Var add_op_var();
  Index batch_rows() const { return options_.batch_rows; }

  using Execution::Range;
  /// A range of rows that steps run over: of vertices of a type, or of their edges.
  struct Tile {
    std::size_t type;
    Rate rate;
    Range rows;
    float* scratch = nullptr;    ///< the memory of values in tiles
    Index first_in_scratch = 0;  ///< the first row in that memory
    float* values = nullptr;     ///< the memory of all other values, if it is not the minibatch's
  };
  // The functions of ops. Each requires the accesses described at the top of this file.
  void take_memory();
  void run(const std::vector<Part>& parts);
  void run(const HostTensorStep& step);
  /// For the gradient of a parameter that is computed in blocks of columns: begins the tensor, then runs the step for
  /// one block.
  void begin_in_blocks(std::size_t tensor);
  void run(const HostTensorStep& step, Range columns);
  /// Adds up the losses, after the forward pass. If one is not finite, throws Error, naming the minibatch and the
  /// operator, or stores that text in MinibatchEnd::not_finite.
  void finish_losses();
  /// The end of the ops that use scratch memory.
  void finish() { scratch_.give_back(); }
  /// What made a loss not finite: an input, a parameter, or an operator. Computes values again, in memory of its own,
  /// so it may run beside the backward pass.
  std::string culprit(const BadLoss& bad);
  using Execution::BadLoss;
  using Execution::range;

 private:
  std::shared_ptr<HostExecution> self() { return std::static_pointer_cast<HostExecution>(shared_from_this()); }
  void collect(std::size_t push, const std::vector<std::int32_t>& row_of, Matrix<float> out) const;
  void map_memory();
  float* region(const TypePlan& type, std::size_t number, const Tile& tile) const {
    return (tile.values != nullptr ? tile.values : data_) + offsets_[type.first_region + number];
  }
  void clear_missing(float* values) const;
  /// The most elements that the tiles of one segment take.
  static Index scratch_of(const HostPlan& plan, const Layout& layout);
  /// Memory as in a Tile.
  struct TileMemory {
    float *scratch, *values = nullptr;
  };
  /// Calls visit(step, tile) for all steps of a part, in the order in which they must run.
  template <class Visit>
  void each_step(const Part& part, const TileMemory& memory, Visit visit);
  void run_step(const HostStep& step, const Tile& tile);
  /// What a step that is no product reads and writes; see StepTimes.
  std::int64_t bytes_of(const Step& step, const Tile& tile) const;
  void run_timed(const HostTensorStep& step, Matrix<float> tensor);
  void run_untimed(const HostTensorStep& step, Matrix<float> out);
  /// Calls visit(row, its slot at a consumer) for the rows whose consumers have slots for the state, for the first
  /// consumer of each row, then visit_more() likewise for further consumers, row by row and in order. `slots_of`
  /// selects states or gradients.
  using SlotsOf = std::vector<ChildSlots> TypePlan::*;
  template <class Visit, class VisitMore>
  void each_slot(SlotsOf slots_of, std::size_t state, const Tile& tile, Visit visit, VisitMore visit_more) const;
  void scatter(const Step& step, const Tile& tile);
  void gather(const Step& step, const Tile& tile);
  void take_incoming(const Step& step, const Tile& tile);
  void read_in_place(const HostStep& step, const Tile& tile);
  void take_incoming_products(const HostStep& step, const Tile& tile);
  void run_kernel(const HostStep& step, const Tile& tile, Matrix<float> out);
  void run_where_present(const Step& step, const Tile& tile, const Kernel<float>& kernel,
                         const KernelCall<float>& call) const;
  /// The rows of the place that belong to the tile; all rows if the place has the other rate.
  Matrix<float> place(const Place& place, const Tile& tile) const;
  Matrix<const float> operand(const Place& place, const Tile& tile) const;
  bool explains(const std::exception& error) const;
  /// The text of the error that explain() throws, or of `error` if that is not to be explained.
  std::string explanation(const HostStep& step, const Tile& tile, const std::exception& error);
  [[noreturn]] void explain(const HostStep& step, const Tile& tile, const std::string& error);
  std::string find_culprit(VertexRow loss, const std::vector<char>& leads);
  std::string find_input(const std::vector<std::vector<char>>& involved) const;
  std::string find_given(const std::vector<std::vector<char>>& involved) const;
  std::vector<std::vector<char>> below(VertexRow top) const;
  /// The vertex of a row, or the consumer of a row that is an edge.
  VertexRow vertex_of(const Tile& tile, Index row) const;

  const std::shared_ptr<const HostPlan> lowered_;
  const std::vector<char> needed_;
  std::vector<Buffer> op_vars_;  // without bytes: own the variables of add_op_var()
  Scratch scratch_;
  float* data_ = nullptr;  // written by take_memory()
};

template <class Visit>
void HostExecution::each_step(const Part& part, const TileMemory& memory, Visit visit) {
  const auto& segments = lowered_->types[part.type].phases[static_cast<std::size_t>(part.phase)];
  if (segments.empty()) return;
  for (Range batch{part.begin, 0}; batch.begin < part.end; batch.begin = batch.end) {
    batch.end = std::min(part.end - batch.begin, options_.batch_rows) + batch.begin;
    for (const HostSegment& segment : segments) {
      const Range rows = range(part.type, segment.rate, batch);
      const Index at_once = segment.tiled ? segment.tile_rows : rows.end - rows.begin;
      Tile tile{.type = part.type,
                .rate = segment.rate,
                .rows = {rows.begin, 0},
                .scratch = memory.scratch,
                .values = memory.values};
      for (; tile.rows.begin < rows.end; tile.rows.begin = tile.rows.end) {
        tile.rows.end = std::min(tile.rows.begin + at_once, rows.end);
        tile.first_in_scratch = tile.rows.begin;
        for (const HostStep& step : segment.steps) visit(step, tile);
      }
    }
  }
}

}  // namespace windrow
