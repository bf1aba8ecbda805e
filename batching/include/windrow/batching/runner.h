// The runner computes a vertex function over minibatches of graphs, in batches, on the engine.
//
//   windrow::Runner runner(host, cell, parameters);
//   windrow::Minibatch minibatch = runner.differentiate(graphs);
//   parameters.sgd(0.05);
//   double loss = minibatch.loss();  // waits
//
// Networks that are not vertex functions exchange tensors with it: rows that vertices pull, outputs that they push, and
// gradients of both:
//
//   windrow::Minibatch minibatch = runner.record(graphs, {{"features", {features}}}, {"score"});
//   windrow::Tensor gradient = ...;  // of a loss that is computed from minibatch.output("score")
//   runner.backward(minibatch, {{"score", gradient}});
//   minibatch.gradient("features");
//
// Contract
//   Order    A minibatch reads parameters, and writes gradients, in the order of pushes. Its own ops wait for each
//            other only where necessary; samples are divided into groups that run concurrently.
//   Numbers  The same calls give the same bits with every policy and number of workers. Rounding also depends on which
//            vertex types this runner has already seen, because they fix the order of sums.
//   Waiting  A call waits only until fewer than `ahead` minibatches are unfinished. So the next minibatch is scheduled
//            while one runs, and at most `ahead` minibatches hold memory.
//   Devices  Parameters, given tensors and gradients of outputs lie in the memory of the runner's device.
//   Errors   Misuse throws MisuseError at the call. A failing op, or a loss that is not finite, poisons the minibatch,
//            its gradients, and what depends on them; but not a gradient that was finished before an op failed. A step
//            fails as a whole. Waits for these throw OpError; a failure that no wait reported is
//            thrown by the later call that waits for that minibatch to finish.
//   Threads  One at a time for each runner.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/batching/parameters.h"
#include "windrow/batching/vertex_function.h"
#include "windrow/ops/device.h"

namespace windrow {

class Execution;
struct MinibatchEnd;
class Origins;
class LayoutMemory;
struct LayoutOptions;
class StepClock;
struct Plan;
class LoweredPlan;
class ParameterStores;
struct PlanOptions;
namespace ir {
struct ProgramTypes;
}
namespace lazy {
class Epochs;
}

/// Optimisations of a runner. Each can be switched off to measure its effect; results are equal up to rounding. Without
/// `lazy`, and with schedule policy serial, gradients of parameters are accumulated batch by batch in float, so a sum
/// over very many batches loses digits.
struct Optimisations {
  bool specialisation = true;  ///< skips values that are zero because a vertex lacks a child or an index
  bool packing = true;         ///< deprecated: has no effect
  bool eager = true;           ///< computes values that depend on no child first, for all vertices of a group at once
  /// Computes values that no consumer depends on last, for all vertices of a group at once; gradients of parameters
  /// over all vertices at once.
  bool lazy = true;
  bool slots = true;  ///< writes a state where its consumers read it; otherwise each consumer gathers copies
  /// Reads the states of children where these were computed, if edges only use them in dot products with the vertex and
  /// in weighted sums; otherwise each edge has a copy.
  bool in_place = true;
  bool sharing = true;  ///< gives values that are needed at different times the same memory
  bool fusion = true;   ///< runs small steps one after the other over tiles of rows that stay in the cache
  /// Runs what is computed for all vertices at once concurrently with the levels, in blocks that finish before a level
  /// needs them, or start when their levels are done.
  bool streaming = true;
  bool splitting = true;  ///< cuts batches with the work of several ops by rows, for several workers

  friend bool operator==(const Optimisations&, const Optimisations&) = default;
};

struct RunnerOptions {
  /// The most unfinished minibatches when a call returns, including its own; at least 1. Each holds its memory.
  int ahead = 2;
  /// The most groups of samples that run concurrently, at least 1. There are fewer if a group would have less work than
  /// about `group_flops` floating point operations (at least 1; all vertices count as much as the most expensive ones),
  /// and at most two if batches would be narrow, since that costs more than further workers gain.
  int groups = 8;
  std::int64_t group_flops = 80'000'000;
  /// Target work of an op, in floating point operations: smaller pieces of work are combined, larger ones are divided.
  /// When a batch is cut by rows, each op has at least `split_rows` rows, since products of few rows are slow. Both at
  /// least 1.
  std::int64_t op_flops = 20'000'000;
  std::int64_t split_rows = 32;
  /// The schedule: in which batches vertices that others depend on are computed; see schedule.h. Policy serial makes
  /// batches of one vertex.
  SchedulePolicy schedule = SchedulePolicy::level;
  /// The most vertex types, per kind, with a computation of their own; at least 0. A vertex type is the set of children
  /// and optional indices that a vertex has. The first types that this runner sees are computed without what they lack;
  /// vertices of all later types are computed with all children and indices, with zeros for missing ones. Choose fewer
  /// for a function whose minibatches have few vertices of each type.
  std::int64_t own_types = 32;
  /// The most vertices of one batch, at least 1; 1 computes vertices one at a time, with the same kernels.
  std::int64_t batch_rows = INT64_MAX;
  Optimisations optimisations = {};
  /// Measures RunnerStats::times by reading the clock around each step, which is noticeable with small tiles.
  /// On the host only.
  bool time_steps = false;
};

/// A tensor for Vertex::pull_row. A handle.
struct Given {
  Tensor rows;
  /// For each vertex, in the order of graphs and vertices, the row that it pulls; ignored for vertices that pull none.
  /// If empty, vertex i pulls row i, so there must be a row for each vertex; for a minibatch without vertices, any
  /// number of rows is accepted.
  std::vector<std::int32_t> row_of = {};
};
/// Given tensors by name. Names that the function does not pull are ignored.
using GivenTensors = std::map<std::string, Given>;

/// An output whose gradient will be passed to backward().
struct Announced {
  std::string output = {};
  /// For each vertex, in the order of graphs and vertices, its row of the gradient; several vertices may share one. If
  /// empty, vertex i has row i, so the gradient must have a row for each vertex; for a minibatch without vertices, any
  /// number of rows is accepted.
  std::vector<std::int32_t> row_of = {};
};

/// What the steps of one operator took.
struct OperatorTime {
  std::int64_t steps = 0, ns = 0;
  std::int64_t flops = 0;  ///< of products
  std::int64_t bytes = 0;  ///< of other steps: what they read and wrote, see StepTimes
};
using OperatorTimes = std::map<std::string, OperatorTime>;  ///< by the name of the operator

/// Time spent in steps so far, added up over all workers, and bytes. Excludes gradient descent, and collecting outputs.
struct StepTimes {
  std::int64_t product_ns = 0;     ///< products with parameters, and their gradients
  std::int64_t arithmetic_ns = 0;  ///< other arithmetic
  /// Moving values: lookups, gathers, scatters, copies, fills, and sums of values that are scattered to one place.
  std::int64_t move_ns = 0;
  /// What these steps read and wrote: rows of operands, rows of results, and results that are added to twice. A lookup
  /// counts the rows that it looks up, a scattered row each of its consumers.
  std::int64_t arithmetic_bytes = 0, move_bytes = 0;
  /// The same, operator by operator. Moves that are no operators have names as "gather" and "scatter".
  OperatorTimes products = {}, arithmetic = {}, moves = {};

  StepTimes& operator+=(const StepTimes& other);
  StepTimes& operator-=(const StepTimes& earlier);
  friend StepTimes operator-(StepTimes later, const StepTimes& earlier) { return later -= earlier; }
};

/// Counted when minibatches are scheduled and not when they run, except `times`.
struct RunnerStats {
  std::int64_t minibatches = 0;
  std::int64_t vertices = 0;
  std::int64_t batches = 0;  ///< fused runs of steps over rows of one vertex type; each part counts if a batch is cut
  std::int64_t kernels = 0;  ///< steps of batches; steps that are not heavy run tile by tile
  std::int64_t ops = 0;      ///< engine ops, except those of Minibatch::output and gradient
  std::int64_t multiply_flops = 0;  ///< floating point operations of products with rows of vertices
  std::int64_t peak_bytes = 0;      ///< the largest memory of a minibatch, without parameters and tensors
  std::int64_t schedule_ns = 0;     ///< host time to make layouts (rows, slots, ordered inputs)
  std::int64_t plans = 0;           ///< plans made
  std::int64_t planned_types = 0;   ///< vertex types of these plans, added up
  StepTimes times = {};             ///< zero unless RunnerOptions::time_steps is set
};

/// A minibatch as schedules see it: in groups of consecutive samples, whose batches are separate. A value.
struct GroupedMinibatch {
  std::vector<std::string> types = {};  ///< what each vertex type is, for people: "list, with children"
  /// Their costs are floating point operations of a vertex with one edge, forward and backward: an estimate.
  std::vector<TypedGraph> groups = {};
};

/// A handle to the results of one call. After the engine is gone, members that need it throw MisuseError.
class Minibatch {
 public:
  std::int64_t vertices() const;
  /// Waits for the sum of the losses over all vertices, and returns it. Throws OpError if the minibatch failed. A loss
  /// that is not finite is a failure, except for a minibatch with gradients whose parameters have NonFinite::skip.
  double loss(std::source_location from = std::source_location::current()) const;
  /// The same as a function, to be called later. It does not keep the minibatch's memory, which a handle does.
  std::function<double()> pending_loss(std::source_location from = std::source_location::current()) const;
  /// The output of that name: a row for each vertex, in the order of graphs and vertices; zero for vertex types for
  /// which the value is zero. Pushes the op that collects it. Throws MisuseError for an unknown name.
  Tensor output(const std::string& name, std::source_location from = std::source_location::current()) const;
  /// The output of some vertices: `row_of` contains, for each vertex in the order of graphs and vertices, its row in
  /// the result, or -1 for none; of several vertices with one row, one is chosen. Throws MisuseError if its length is
  /// not the number of vertices, or for a row below -1.
  Tensor output(const std::string& name, std::vector<std::int32_t> row_of,
                std::source_location from = std::source_location::current()) const;
  /// The gradient of a given tensor, in its shape. Pushes the ops that add it up. Throws MisuseError for an unknown
  /// name, and before the minibatch is differentiated.
  Tensor gradient(const std::string& name, std::source_location from = std::source_location::current()) const;

 private:
  friend class Runner;
  friend class lazy::Epochs;
  explicit Minibatch(std::shared_ptr<Execution> execution) : execution_(std::move(execution)) {}

  std::shared_ptr<Execution> execution_;
};

/// An owner. Its minibatches may outlive it, and it may outlive its Parameters object, whose values it keeps alive.
class Runner {
 public:
  /// Throws MisuseError for options out of range, if the function uses parameters of other sets, if these are on
  /// another engine or device, or if the function has a state that is never scattered.
  Runner(const Device& device, const VertexFunction& function, const ParameterSets& parameters,
         RunnerOptions options = {});
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  using Graphs = std::span<const InputGraph* const>;
  /// Computes losses and outputs: pushes the ops. `graphs` is read during the call only. Throws MisuseError for a graph
  /// of another vertex function, for a tensor that is pulled but not given, or has the wrong width or number of rows,
  /// and for a vertex that pulls a row which the tensor lacks.
  Minibatch run(Graphs graphs, const GivenTensors& given = {},
                std::source_location from = std::source_location::current());
  /// As run(), and computes the gradients of the loss with respect to all parameters. Throws MisuseError if the
  /// function has no loss, or uses an operator without a gradient.
  Minibatch differentiate(Graphs graphs, const GivenTensors& given = {},
                          std::source_location from = std::source_location::current());

  /// The first half of differentiate(), for functions whose outputs receive gradients from elsewhere: `outputs` names
  /// those outputs, and backward() is the second half. The minibatch keeps its memory until its last handle ends.
  /// Throws MisuseError as run() does, for an unknown output, for an operator without a gradient, and if there is
  /// neither a loss nor an output.
  Minibatch record(Graphs graphs, const GivenTensors& given, const std::vector<std::string>& outputs,
                   std::source_location from = std::source_location::current());
  /// As record(), for output gradients that have rows for some vertices only.
  Minibatch record_rows(Graphs graphs, const GivenTensors& given, std::vector<Announced> outputs,
                        std::source_location from = std::source_location::current());
  /// What backward() does to the existing gradients of parameters.
  enum class Gradients {
    set,  ///< replaces the gradients of all parameters by this minibatch's, unless keep_gradients() was called
    add,  ///< adds this minibatch's gradients to the existing ones
  };
  /// The second half: pushes the gradients of the loss, if there is one, and of the outputs that record() named, each
  /// weighted by its gradient in `gradients`. Throws MisuseError if `gradients` names other outputs, if a shape differs
  /// from the output's, if a gradient lacks a row that `row_of` names, if the minibatch has been differentiated, or if
  /// this runner did not record it.
  void backward(const Minibatch& minibatch, const std::map<std::string, Tensor>& gradients,
                Gradients of_parameters = Gradients::set, std::source_location from = std::source_location::current());

  /// Forgets the vertex types that this runner has seen, on which rounding depends. Types that were seen also have
  /// gradients in minibatches without them: zeros, with which optimisers take a step. A program that saves a checkpoint
  /// calls it there, so that it goes on as a new runner of the same function and options does, bit by bit.
  void forget();
  [[deprecated("call forget() where a checkpoint is saved")]] std::vector<std::int64_t> history() const { return {}; }
  [[deprecated("a new runner needs none: see forget()")]] void set_history(std::span<const std::int64_t>) {}

  /// How this runner would divide a minibatch that it differentiates; computes nothing. Counts its vertex types as
  /// seen. Throws MisuseError as differentiate() does.
  GroupedMinibatch grouped(Graphs graphs);

  RunnerStats stats() const;
  /// The current plans, step by step, for the vertex types seen so far. For people.
  std::string describe() const;

 private:
  friend class lazy::Epochs;
  Runner(const Device& device, const VertexFunction& function, std::shared_ptr<ParameterStores> parameters,
         RunnerOptions options);
  /// The purpose of a plan: inference, or training with gradients of these outputs.
  struct Purpose {
    bool training = false;
    std::vector<std::size_t> outputs = {};
    std::vector<std::size_t> frozen = {};  ///< the frozen parameters, for training; plan_for() sets it
    friend auto operator<=>(const Purpose&, const Purpose&) = default;
  };
  void require_near(const ParameterStore& parameters) const;
  void see_types(Graphs graphs);
  void see_type(std::uint64_t type);
  struct Planned {
    std::shared_ptr<const Plan> plan;
    std::shared_ptr<const LoweredPlan> lowered;
    std::int64_t used;  // number of the last minibatch that used it
  };
  const Planned& plan_for(Graphs graphs, Purpose purpose);
  void require_own(Graphs graphs) const;
  LayoutOptions layout_options() const;
  std::shared_ptr<const Plan> new_plan(const Purpose& purpose) const;
  void forget_a_plan();
  using RowsOf = std::vector<std::vector<std::int32_t>>;  // by output; see Announced
  /// Pushes the ops that precede the groups.
  std::shared_ptr<Execution> start(Graphs graphs, const GivenTensors& given, const Purpose& purpose, RowsOf rows,
                                   std::source_location from);
  std::shared_ptr<Execution> forward(Graphs graphs, const GivenTensors& given, const Purpose& purpose, RowsOf rows,
                                     std::source_location from);
  void hold_back(std::source_location from);
  std::vector<Tensor> tensors_of(const Plan& plan, const std::vector<const Given*>& given,
                                 const std::vector<char>& needed);
  void take_gradients(Execution& execution, const std::map<std::string, Tensor>& gradients) const;
  void add_to_gradients(Execution& execution) const;
  void add_gradients(Execution& execution, std::source_location from);

  Device device_;
  std::shared_ptr<const Backend> backend_;
  VertexFunction function_;
  std::shared_ptr<ParameterStores> parameters_;
  std::vector<std::size_t> numbers_;  // in parameters_, of the parameters of the function
  RunnerOptions options_;
  const std::uint64_t id_;                   // unique among the runners of the process
  std::unique_ptr<ir::ProgramTypes> types_;  // of all graphs so far
  std::map<Purpose, Planned> plans_;         // cleared when the types change
  std::deque<std::shared_ptr<MinibatchEnd>> unfinished_;
  std::shared_ptr<LayoutMemory> layouts_;   // of minibatches that have ended
  std::shared_ptr<StepClock> clock_;        // null unless steps are timed
  std::shared_ptr<const Origins> origins_;  // of the next minibatch; null if its errors name vertices
  bool counts_minibatches_ = true;          // not by a lazy graph, which counts its minibatches itself
  bool waits_for_more_ = false;             // a lazy graph sets it for what it computes again: rather fewer batches
  RunnerStats stats_;
};

}  // namespace windrow
