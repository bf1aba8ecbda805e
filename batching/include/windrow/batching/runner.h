// The runner: computes a vertex function over minibatches of graphs, in batches, on the engine.
//
//   windrow::Runner runner(host, cell, parameters);
//   windrow::Minibatch minibatch = runner.differentiate(graphs);
//   parameters.sgd(0.05);
//   double loss = minibatch.loss();  // waits
//
// A network that is no vertex function meets one by tensors: rows that vertices pull, outputs that they push, and the
// gradients of both:
//
//   windrow::Minibatch minibatch = runner.record(graphs, {{"features", {features}}}, {"score"});
//   windrow::Tensor gradient = ...;  // of a loss that is computed from minibatch.output("score")
//   runner.backward(minibatch, {{"score", gradient}});
//   minibatch.gradient("features");
//
// Contract
//   Order    A minibatch reads parameters, and writes gradients, as of the ops pushed before it. Its own ops wait for
//            each other only where they must: samples are cut into groups that run side by side.
//   Numbers  The same calls give the same bits whatever the policy and the number of workers. Rounding also depends on
//            which types of vertices this runner has seen before, and how often: they fix the order of sums.
//   Waiting  A call waits only until fewer than `ahead` minibatches are unfinished; so the next one is scheduled
//            while one runs, and no more than `ahead` take memory.
//   Errors   Misuse throws at the call. A failing op, or a loss that is not finite, poisons the minibatch, its
//            gradients and what is made of them; waits throw it, and so does the next call.
//   Threads  One at a time for each runner.
#pragma once

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

class Batch;
struct MinibatchEnd;
class Origins;
class OwnTypes;
class ScheduleLessons;
class StepClock;
struct Plan;
namespace lazy {
class Epochs;
}

/// What a runner does beyond computing batch after batch. Each can be left out, to see what it brings; results are the
/// same to rounding. Without `lazy`, and by policy serial, gradients of parameters are added up batch by batch, in
/// float: of very many, such a sum loses digits.
struct Optimisations {
  bool specialisation = true;  ///< what is zero since a vertex lacks a child is not computed
  bool packing = true;         ///< products of one value with several parameters, such as gates, become one
  bool eager = true;           ///< what depends on no child is computed first, for all vertices of a group at once
  bool lazy = true;            ///< what no consumer depends on is computed last, in the same way; and the gradients of
                               ///< parameters over all vertices
  bool slots = true;      ///< a state is written where its consumers look for it; else each consumer gathers copies
  bool sharing = true;    ///< values that are needed one after the other lie in the same memory
  bool fusion = true;     ///< small steps run one after the other over tiles of rows that stay in the cache
  bool streaming = true;  ///< what is computed for all vertices at once runs beside the levels, in blocks that are
                          ///< there when a level needs them, or begin when their levels are done
  bool splitting = true;  ///< what is more work than an op is worth is cut by rows, for several workers

  friend bool operator==(const Optimisations&, const Optimisations&) = default;
};

struct RunnerOptions {
  /// Unfinished minibatches that a call leaves behind it, itself among them; 1 or more. Each holds its memory.
  int ahead = 2;
  /// Groups of samples that run side by side, at most. Fewer where a group would have less than `group_vertices`; and
  /// no more than two where its batches would be narrow, since that costs more than further workers bring.
  int groups = 8;
  std::int64_t group_vertices = 512;
  /// Work that an op is worth, in floating point operations: less is put together, of more others get their share. Of a
  /// batch that is cut by rows each op has `split_rows` or more, since products of few rows are slow.
  std::int64_t op_flops = 20'000'000;
  std::int64_t split_rows = 32;
  /// In which batches vertices are computed that others wait for; see schedule.h. Policy learned learns from the first
  /// minibatch and some harder ones behind it, and anew where there are types of vertices that the runner has not seen
  /// before, as long as the schedules that it tries have no more than 20 million vertices in all, and is agenda then;
  /// policy serial makes all batches of one vertex.
  SchedulePolicy schedule = SchedulePolicy::level;
  /// Types of vertices with a computation of their own, of each kind of vertex, at most. A type is which children and
  /// optional indices a vertex has. Where more types were seen, only the frequent ones are computed without what they
  /// lack; all others have all children and indices, and zeros for those that they lack. Fewer for a function of which
  /// no minibatch has many vertices of one type. 0 or more.
  std::int64_t own_types = 32;
  /// The most vertices of one batch: 1 computes one vertex at a time, by the same kernels and without waiting.
  std::int64_t batch_rows = INT64_MAX;
  Optimisations optimisations = {};
  /// Reads the clock around each step, for RunnerStats::times: some 30 ns each, with which small tiles are felt.
  bool time_steps = false;
};

/// A tensor for Vertex::pull_row. A handle.
struct Given {
  Tensor rows;
  /// Of each vertex, graph after graph, which row it pulls; those of vertices that pull none are not looked at. Empty:
  /// the first vertex has the first row, and so on; a minibatch without vertices takes a tensor of any number of rows.
  std::vector<std::int32_t> row_of = {};
};
/// By name. What the function does not pull is passed over.
using GivenTensors = std::map<std::string, Given>;

/// An output whose gradient is to come.
struct Announced {
  std::string output = {};
  /// Of each vertex, graph after graph, which row of the gradient is its own; several may have one. Empty: the first
  /// vertex has the first row, and so on; a minibatch without vertices takes a gradient of any number of rows.
  std::vector<std::int32_t> row_of = {};
};

/// What steps took so far, added up over all workers. Descent is none of them, nor is what outputs are collected by.
struct StepTimes {
  std::int64_t product_ns = 0;     ///< products with parameters, and their gradients
  std::int64_t arithmetic_ns = 0;  ///< what else is computed
  std::int64_t move_ns = 0;  ///< values brought to other places: lookups, gathers, scatters, copies, fills; and sums of
                             ///< those that meet
};

/// Counted when minibatches are scheduled, not when they run; but for times.
struct RunnerStats {
  std::int64_t minibatches = 0;
  std::int64_t vertices = 0;
  std::int64_t batches = 0;  ///< fused runs of steps over rows of one type of vertex; each part of one that is cut
  std::int64_t kernels = 0;  ///< steps of them, of which those that are not heavy run tile by tile
  std::int64_t ops = 0;      ///< engine ops, but for those of Minibatch::output and gradient
  std::int64_t multiply_flops = 0;  ///< floating point operations of products with rows of vertices
  std::int64_t peak_bytes = 0;      ///< that one minibatch took, beside parameters and tensors; the most
  std::int64_t schedule_ns = 0;     ///< host time to make layouts: rows, slots and inputs in order; and to learn
  std::int64_t plans = 0;           ///< that were made
  std::int64_t planned_types = 0;   ///< types of vertices that these are for, added up
  StepTimes times = {};             ///< zeros unless RunnerOptions::time_steps
};

/// A handle to what one call computes. After the engine is gone, what needs it throws MisuseError.
class Minibatch {
 public:
  std::int64_t vertices() const;
  /// Waits for the sum of the losses over all vertices. Throws OpError if the minibatch failed; a loss that is not
  /// finite is a failure, but for a minibatch with gradients whose parameters have NonFinite::skip.
  double loss(std::source_location from = std::source_location::current()) const;
  /// What was pushed by that name: a row for each vertex, graph after graph, in the order of their vertices; zeros
  /// where the value is zero for a vertex's type. Pushes the op that collects it. Throws MisuseError for an unknown
  /// name.
  Tensor output(const std::string& name, std::source_location from = std::source_location::current()) const;
  /// The same of some vertices: of each, graph after graph, which row is its own, and -1 for none. Throws MisuseError
  /// for another number of vertices, or a row below that.
  Tensor output(const std::string& name, std::vector<std::int32_t> row_of,
                std::source_location from = std::source_location::current()) const;
  /// Of a tensor that was given, in its shape. Pushes the ops that add it up. Throws MisuseError for another name, and
  /// before the minibatch was differentiated.
  Tensor gradient(const std::string& name, std::source_location from = std::source_location::current()) const;

 private:
  friend class Runner;
  friend class lazy::Epochs;
  explicit Minibatch(std::shared_ptr<Batch> batch) : batch_(std::move(batch)) {}

  std::shared_ptr<Batch> batch_;
};

/// An owner. Its minibatches may outlive it, and it its parameters, whose values it keeps.
class Runner {
 public:
  /// Throws MisuseError for options out of range, or if the function uses other parameters.
  Runner(const Device& device, const VertexFunction& function, Parameters& parameters, RunnerOptions options = {});
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  using Graphs = std::span<const InputGraph* const>;
  /// Pushes the computation of losses and outputs. Graphs are looked at during the call only. Throws MisuseError for a
  /// tensor that is pulled and not given, or that has another width, or another number of rows than it needs.
  Minibatch run(Graphs graphs, const GivenTensors& given = {},
                std::source_location from = std::source_location::current());
  /// The same, and of the gradients of the loss for all parameters. Throws MisuseError if the function has no loss, or
  /// an operator without a gradient.
  Minibatch differentiate(Graphs graphs, const GivenTensors& given = {},
                          std::source_location from = std::source_location::current());

  /// The same in two calls, where gradients of outputs come from elsewhere: of those named here. Its memory is kept
  /// until the last handle to it goes.
  Minibatch record(Graphs graphs, const GivenTensors& given, const std::vector<std::string>& outputs,
                   std::source_location from = std::source_location::current());
  /// The same where gradients have rows of some vertices only.
  Minibatch record_rows(Graphs graphs, const GivenTensors& given, std::vector<Announced> outputs,
                        std::source_location from = std::source_location::current());
  /// Pushes the gradients of the loss, if there is one, and of the outputs times what is given for each that record()
  /// named. Throws MisuseError if these differ, have other shapes than the outputs, for a second time, or for a
  /// minibatch that another runner recorded; a row that a gradient lacks fails the op.
  enum class Gradients {
    set,  ///< those of parameters are this minibatch's
    add,  ///< it adds to what they were before
  };
  void backward(const Minibatch& minibatch, const std::map<std::string, Tensor>& gradients,
                Gradients of_parameters = Gradients::set, std::source_location from = std::source_location::current());

  RunnerStats stats() const;
  /// What would be computed for the types of vertices seen so far, step by step. For people.
  std::string describe() const;

 private:
  friend class lazy::Epochs;
  Runner(const Device& device, const VertexFunction& function, std::shared_ptr<ParameterSet> parameters,
         RunnerOptions options);
  /// What a plan is for: inference, or training with gradients of these outputs.
  struct Purpose {
    bool training = false;
    std::vector<std::size_t> outputs = {};
    friend auto operator<=>(const Purpose&, const Purpose&) = default;
  };
  void see_types(Graphs graphs);
  const std::shared_ptr<const Plan>& plan_for(Graphs graphs, const Purpose& purpose);
  std::shared_ptr<const Plan> new_plan(const Purpose& purpose) const;
  void forget_a_plan();
  /// Pushes what comes before the groups.
  using RowsOf = std::vector<std::vector<std::int32_t>>;  // by output; see Announced
  std::shared_ptr<Batch> start(Graphs graphs, const GivenTensors& given, const Purpose& purpose, RowsOf rows,
                               std::source_location from);
  std::shared_ptr<Batch> forward(Graphs graphs, const GivenTensors& given, const Purpose& purpose, RowsOf rows,
                                 std::source_location from);
  void hold_back(std::source_location from);
  std::vector<Tensor> tensors_of(const Plan& plan, const std::vector<const Given*>& given,
                                 const std::vector<char>& needed);
  void take_gradients(Batch& batch, const std::map<std::string, Tensor>& gradients) const;
  void set_gradients(Batch& batch, std::source_location from);
  void add_gradients(Batch& batch, std::source_location from);

  Device device_;
  VertexFunction function_;
  std::shared_ptr<ParameterSet> parameters_;
  RunnerOptions options_;
  const std::uint64_t id_;           // of all runners of the process
  std::unique_ptr<OwnTypes> types_;  // of all graphs so far
  struct Planned {
    std::shared_ptr<const Plan> plan;
    std::int64_t used;  // by the minibatch of this number last
  };
  std::map<Purpose, Planned> plans_;          // emptied when the types change
  std::shared_ptr<ScheduleLessons> lessons_;  // begun anew then
  std::deque<std::shared_ptr<MinibatchEnd>> unfinished_;
  std::shared_ptr<StepClock> clock_;        // null unless steps are timed
  std::shared_ptr<const Origins> origins_;  // of the next minibatch; null where its errors name vertices
  RunnerStats stats_;
};

}  // namespace windrow
