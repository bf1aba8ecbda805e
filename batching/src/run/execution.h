// The execution of a minibatch: its memory, and the functions that its ops run.
//
// The memory is one buffer. The first op overwrites the buffer's variable and the last op mutates it, so an op that
// reads the variable after that sees everything that was written. Each op between them reads the buffer's variable,
// writes a variable of its own, and reads the variables of the ops that it must wait for (pieces.h). Ops that may run
// concurrently write disjoint parts of the buffer.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layout/layout.h"
#include "layout/layout_memory.h"
#include "layout/looked_up.h"
#include "plan/plan.h"
#include "run/origins.h"
#include "run/pieces.h"
#include "run/scratch.h"
#include "run/step_clock.h"
#include "windrow/batching/parameters.h"
#include "windrow/memory/buffer.h"
#include "windrow/ops/device.h"
#include "windrow/ops/tensor.h"

namespace windrow {

/// The outcome of a minibatch. Waiting threads hold this, so they do not keep the minibatch's memory alive.
struct MinibatchEnd {
  explicit MinibatchEnd(const Device& device) : over(device.engine, device.memory, 0, "end of a minibatch") {}

  const Buffer over;  ///< no bytes; the last op writes its variable
  double loss = 0;    ///< written by Execution::finish()
  /// The error text of a loss that is not finite, if the minibatch does not fail for it. Written by the ops that check
  /// losses; read by ops and threads that have waited for `over`.
  std::string not_finite;
  /// Whether its failure was reported to a caller. Written and read by waiting threads.
  std::atomic<bool> failure_told{false};
};

/// An owner. Made by the runner and shared by the ops of the minibatch; the last holder destroys it.
class Execution {
 public:
  struct Options {
    std::uint64_t runner;  // id of the runner
    std::int64_t number;   // of the minibatch, for errors
    Index batch_rows;
    std::shared_ptr<StepClock> clock = nullptr;        // null where steps are not timed
    std::shared_ptr<const Origins> origins = nullptr;  // null where errors name vertices
    bool keeps_not_finite = false;                     // see NonFinite::skip
    std::shared_ptr<LayoutMemory> layouts = nullptr;   // takes the layout's memory back, unless null
  };
  Execution(const Device& device, std::shared_ptr<const Plan> plan, Layout layout, std::vector<Tensor> tensors,
            std::vector<char> needed, Options options);
  ~Execution() {
    if (options_.layouts != nullptr) options_.layouts->give_back(std::move(layout_));
  }
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  const Plan& plan() const { return *plan_; }
  const Layout& layout() const { return layout_; }
  const Device& device() const { return device_; }
  const Tensor& tensor(std::size_t number) const { return tensors_[number]; }
  /// See needed.h.
  bool needs(std::size_t tensor) const { return needed_[tensor] != 0; }
  std::uint64_t runner() const { return options_.runner; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }
  Var memory() const { return memory_->var(); }
  const std::shared_ptr<MinibatchEnd>& end() const { return end_; }
  /// The variables of the tensors that forward passes read.
  std::vector<Var> inputs() const;
  /// Makes a variable for an op of the minibatch.
  Var add_op_var();
  Index batch_rows() const { return options_.batch_rows; }

  struct Range {
    Index begin, end;
  };
  /// A range of rows that steps run over: of vertices of a type, or of their edges.
  struct Tile {
    std::size_t type;
    Rate rate;
    Range rows;
    float* scratch = nullptr;    ///< the memory of values in tiles
    Index first_in_scratch = 0;  ///< the first row in that memory
  };
  /// The rows of that rate that belong to a range of vertices of a type.
  Range range(std::size_t type, Rate rate, Range vertices) const;

  // The functions of ops. Each requires the accesses described at the top of this file.
  void take_memory();
  void run(const std::vector<Part>& parts);
  void run(const TensorStep& step);
  /// For the gradient of a parameter that is computed in blocks of columns: begins the tensor, then runs the step for
  /// one block.
  void begin_in_blocks(std::size_t tensor);
  void run(const TensorStep& step, Range columns);
  /// Adds up the losses. If one is not finite, throws Error, naming the minibatch and the operator, or stores that text
  /// in MinibatchEnd::not_finite.
  void finish();
  /// The end of gradients that are pushed by backward(), without losses.
  void finish_backward() { scratch_.give_back(); }
  /// Throws Error with this text and the culprit, for a vertex whose output is a loss that is not finite. Must run
  /// before any op of the backward pass, since it recomputes values in the minibatch's memory.
  [[noreturn]] void refuse_loss(const std::string& output, std::int32_t vertex, const std::string& what);
  /// Copies an output into `out`, with the rows that `row_of` assigns to vertices; see Minibatch::output.
  void collect(std::size_t push, const std::vector<std::int32_t>& row_of, Matrix<float> out) const;
  std::string name_of(const Step& step) const;

  /// Sets a tensor that is given after the forward computation was pushed. Called before ops that read it are pushed.
  void set_tensor(std::size_t number, const Tensor& tensor) { tensors_[number] = tensor; }
  /// Makes this gradient of a parameter add to its existing value. Called before ops that write it are pushed.
  void add_to(std::size_t tensor) { adds_to_[tensor] = 1; }
  bool adds_to(std::size_t tensor) const { return adds_to_[tensor] != 0; }
  /// A given tensor: its number of rows, and the parts of its gradient once backward ops are pushed. Used only by the
  /// thread that calls the runner, as are the next two members.
  struct GivenTensor {
    Index rows;
    std::vector<LookedUp> lookups = {};
  };
  std::vector<GivenTensor> given;
  /// By output: whether its gradient has the rows that were announced, instead of one row for each vertex.
  std::vector<char> announced_rows;
  /// Whether the gradients were pushed.
  bool differentiated = false;

  /// The rows of a lookup's gradient, as a tensor that shares the buffer.
  Tensor rows_of(const Plan::Rows& rows) const;

 private:
  void map_memory();
  float* region(const TypePlan& type, std::size_t number) const { return data_ + offsets_[type.first_region + number]; }
  void clear_missing();
  /// Calls visit(step, tile) for all steps of a part, in the order in which they must run.
  template <class Visit>
  void each_step(const Part& part, float* scratch, Visit visit);
  void run_step(const Step& step, const Tile& tile);
  void run_timed(const TensorStep& step, Matrix<float> tensor);
  void run_untimed(const TensorStep& step, Matrix<float> out);
  /// Calls visit(row, its slot at a consumer) for the rows whose consumers have slots for the state: for the first
  /// consumer of each row, then for further consumers in order. `slots_of` selects states or gradients.
  using SlotsOf = std::vector<ChildSlots> TypePlan::*;
  template <class Visit>
  void each_slot(SlotsOf slots_of, std::size_t state, const Tile& tile, Visit visit) const;
  void scatter(const Step& step, const Tile& tile);
  void gather(const Step& step, const Tile& tile);
  void take_incoming(const Step& step, const Tile& tile);
  void run_kernel(const Step& step, const Tile& tile, Matrix<float> out);
  void run_where_present(const Step& step, const Tile& tile, const Kernel<float>& kernel,
                         const KernelCall<float>& call) const;
  /// The rows of the place that belong to the tile; all rows if the place has the other rate.
  Matrix<float> place(const Place& place, const Tile& tile) const;
  Matrix<const float> operand(const Place& place, const Tile& tile) const;
  bool explains(const std::exception& error) const;
  [[noreturn]] void explain(const Step& step, const Tile& tile, const std::string& error);
  struct VertexRow {
    std::size_t type;
    Index row;
  };
  std::string find_culprit(VertexRow loss, const std::vector<char>& leads);
  std::string find_input(const std::vector<std::vector<char>>& involved) const;
  std::string find_given(const std::vector<std::vector<char>>& involved) const;
  std::vector<std::vector<char>> below(VertexRow top) const;
  std::string name() const;
  std::string name_of(VertexRow vertex) const;
  /// " at vertex 3 of graph 1", or " recorded at parser.cc:12".
  std::string origin_of(VertexRow vertex, const Step* step) const;
  /// The vertex of a row, or the consumer of a row that is an edge.
  VertexRow vertex_of(const Tile& tile, Index row) const;

  const Device device_;
  const std::shared_ptr<const Plan> plan_;
  Layout layout_;  // fixed
  // By number in the plan. Written by the thread that pushes, before the ops that read it.
  std::vector<Tensor> tensors_;
  const std::vector<char> needed_;
  std::vector<char> adds_to_;
  const Options options_;
  const std::shared_ptr<MinibatchEnd> end_;
  std::shared_ptr<Buffer> memory_;
  std::vector<Buffer> op_vars_;  // without bytes: own the variables of add_op_var()
  std::vector<Index> offsets_;   // in elements, by region of the plan; only set for types that have rows
  Scratch scratch_;
  float* data_ = nullptr;  // written by take_memory()
};

template <class Visit>
void Execution::each_step(const Part& part, float* scratch, Visit visit) {
  const auto& segments = plan_->types[part.type].phases[static_cast<std::size_t>(part.phase)];
  if (segments.empty()) return;
  for (Range batch{part.begin, 0}; batch.begin < part.end; batch.begin = batch.end) {
    batch.end = std::min(part.end - batch.begin, options_.batch_rows) + batch.begin;
    for (const Segment& segment : segments) {
      const Range rows = range(part.type, segment.rate, batch);
      const Index at_once = segment.tiled ? segment.tile_rows : rows.end - rows.begin;
      Tile tile{part.type, segment.rate, {rows.begin, 0}, scratch};
      for (; tile.rows.begin < rows.end; tile.rows.begin = tile.rows.end) {
        tile.rows.end = std::min(tile.rows.begin + at_once, rows.end);
        tile.first_in_scratch = tile.rows.begin;
        for (const Step& step : segment.steps) visit(step, tile);
      }
    }
  }
}

}  // namespace windrow
