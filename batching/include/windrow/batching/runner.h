// The runner computes a vertex function over minibatches of graphs, in batches, on the engine.
//
//   windrow::Runner runner(host, cell, parameters);
//   windrow::Minibatch minibatch = runner.differentiate(graphs);
//   parameters.sgd(0.05);
//   double loss = minibatch.loss();  // waits
//   std::vector<std::int32_t> labels = windrow::argmax(minibatch.at_roots("logits"));  // of each graph; waits
//
// A network that is not a vertex function can exchange tensors with it: rows that vertices pull, outputs that they
// push, and gradients of both:
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
//            its gradients, and what depends on them; but not a gradient that was finished before the op failed. A step
//            fails as a whole. Waits for poisoned values throw OpError. If no wait reported a failure, the later call
//            that waits for that minibatch to finish throws it.
//   Threads  One at a time for each runner.
#pragma once
#include "windrow/engine/internal/requirements.h"

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
#include "windrow/batching/runner_options.h"
#include "windrow/batching/vertex_function.h"
#include "windrow/engine/error.h"
#include "windrow/ops/device.h"

namespace windrow {

struct Announced;
class Execution;
struct GroupedMinibatch;
class Minibatch;
struct MinibatchEnd;
class Origins;
struct Layout;
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

/// An owner. Its minibatches may outlive it, and it may outlive its Parameters object, whose values it keeps alive.
class Runner {
 public:
  /// Throws MisuseError for options out of range, for a function that uses parameters of other sets or has a state that
  /// is never scattered, and for parameters on another engine or device.
  Runner(const Device& device, const VertexFunction& function, const ParameterSets& parameters,
         RunnerOptions options = {});
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  using Graphs = InputGraphs;
  /// Computes losses and outputs: pushes the ops. `graphs` is read during the call only. Throws MisuseError for a graph
  /// of another vertex function, for a pulled tensor that is missing or has the wrong width or number of rows, and for
  /// a vertex that pulls a row which the tensor lacks. Errors name graphs and vertices by their places, from 0: "sample
  /// 3, vertex 7".
  Minibatch run(const Graphs& graphs, const GivenTensors& given = {},
                std::source_location from = std::source_location::current());
  /// As run(), and computes the gradients of the loss with respect to all parameters. Throws MisuseError if the
  /// function has no loss, or uses an operator without a gradient.
  Minibatch differentiate(const Graphs& graphs, const GivenTensors& given = {},
                          std::source_location from = std::source_location::current());

  /// Prepares a later call of differentiate() or run(): an op of the host lays the minibatch out, on a thread of the
  /// engine, and the call finds it done. Prepared minibatches are best computed in the order in which they were
  /// prepared; the last eight are kept. The results are those without prepare(), except that the vertex types of the
  /// graphs count as seen from now on. Does nothing for functions that pull rows of given tensors. Worth it where the
  /// caller's time limits a device:
  ///
  ///   runner.prepare(next);
  ///   runner.differentiate(current);
  ///
  /// Throws MisuseError as that call does.
  enum class Call { differentiate, run };
  void prepare(const Graphs& graphs, Call later = Call::differentiate);

  /// The first half of differentiate(), for functions whose outputs receive gradients from elsewhere: `outputs` names
  /// those outputs, and backward() is the second half. The minibatch keeps its memory until its last handle ends.
  /// Throws MisuseError as run() does, for an unknown output, for an operator without a gradient, and if there is
  /// neither a loss nor an output.
  Minibatch record(const Graphs& graphs, const GivenTensors& given, const std::vector<std::string>& outputs,
                   std::source_location from = std::source_location::current());
  /// As record(), for output gradients that have rows for some vertices only.
  Minibatch record_rows(const Graphs& graphs, const GivenTensors& given, std::vector<Announced> outputs,
                        std::source_location from = std::source_location::current());
  /// What backward() does to the existing gradients of parameters.
  enum class Gradients {
    set,  ///< replaces the gradients of all parameters by this minibatch's, unless keep_gradients() was called
    add,  ///< adds this minibatch's gradients to the existing ones
  };
  /// The second half: pushes the gradients of the loss, if there is one, and of the outputs that record() named, each
  /// weighted by its gradient in `gradients`. Throws MisuseError if `gradients` names other outputs, has another shape
  /// than the output, or lacks a row that `row_of` names. Also throws it if the minibatch was already differentiated,
  /// or recorded by another runner.
  void backward(const Minibatch& minibatch, const std::map<std::string, Tensor>& gradients,
                Gradients of_parameters = Gradients::set, std::source_location from = std::source_location::current());

  /// Forgets the vertex types that this runner has seen, on which rounding depends. (Seen types have gradients even in
  /// minibatches without them: zeros, with which optimisers take a step.) Call it when you save a checkpoint: then the
  /// runner continues with the same bits as a new runner of the same function and options.
  void forget();
  [[deprecated("call forget() where a checkpoint is saved")]] std::vector<std::int64_t> history() const { return {}; }
  [[deprecated("a new runner needs none: see forget()")]] void set_history(std::span<const std::int64_t>) {}

  /// How this runner would divide a minibatch that it differentiates, or runs if the function has no loss; computes
  /// nothing. Counts its vertex types as seen. Throws MisuseError as these do.
  GroupedMinibatch grouped(const Graphs& graphs);

  RunnerStats stats() const;
  /// The current plans, step by step, for the vertex types seen so far, as readable text.
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
  void see_types(InputGraphs::Pointers graphs);
  void see_type(std::uint64_t type);
  struct Planned {
    std::shared_ptr<const Plan> plan;
    std::shared_ptr<const LoweredPlan> lowered;
    std::int64_t used;  // number of the last minibatch that used it
  };
  const Planned& plan_for(InputGraphs::Pointers graphs, Purpose purpose);
  void require_own(InputGraphs::Pointers graphs) const;
  LayoutOptions layout_options() const;
  std::shared_ptr<const Plan> new_plan(const Purpose& purpose) const;
  void forget_a_plan();
  using RowsOf = std::vector<std::vector<std::int32_t>>;  // by output; see Announced
  /// Pushes the ops that precede the groups.
  std::shared_ptr<Execution> start(InputGraphs::Pointers graphs, const GivenTensors& given, const Purpose& purpose,
                                   RowsOf rows, std::source_location from);
  std::shared_ptr<Execution> forward(InputGraphs::Pointers graphs, const GivenTensors& given, const Purpose& purpose,
                                     RowsOf rows, std::source_location from);
  void hold_back(std::source_location from);
  struct Prepared;
  bool is_prepared(InputGraphs::Pointers graphs) const;
  Layout layout_of(InputGraphs::Pointers graphs, const Planned& planned, const LayoutOptions& options,
                   const Purpose& purpose);
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
  std::shared_ptr<LayoutMemory> layouts_;           // of minibatches that have ended
  std::deque<std::shared_ptr<Prepared>> prepared_;  // in the order of prepare()
  std::shared_ptr<StepClock> clock_;                // null unless steps are timed
  std::shared_ptr<const Origins> origins_;          // of the next minibatch; null if its errors name vertices
  bool counts_minibatches_ = true;                  // false for a lazy graph, which counts its minibatches itself
  bool waits_for_more_ = false;                     // set by a lazy graph when it recomputes: prefer fewer batches
  RunnerStats stats_;
};

/// A handle to the results of one call. After the engine is gone, members that need it throw MisuseError.
class Minibatch {
 public:
  std::int64_t vertices() const;
  /// Waits for the sum of the losses over all vertices, and returns it. Throws OpError if the minibatch failed. A loss
  /// that is not finite is a failure, except for a minibatch with gradients whose parameters have NonFinite::skip.
  double loss(std::source_location from = std::source_location::current()) const;
  /// A variable that the op changes which adds up the losses, for waits with a timeout and for ops that follow it. It
  /// is poisoned if the minibatch failed.
  Var var() const;
  /// The same as loss(), as a function to be called later. Unlike a handle, it does not keep the minibatch's memory.
  std::function<double()> pending_loss(std::source_location from = std::source_location::current()) const;
  /// The output of that name: a row for each vertex, in the order of graphs and vertices; zero for vertex types for
  /// which the value is zero. Pushes the op that collects it. Throws MisuseError for an unknown name.
  Tensor output(const std::string& name, std::source_location from = std::source_location::current()) const;
  /// The output of some vertices: `row_of` contains, for each vertex in the order of graphs and vertices, its row in
  /// the result, or -1 for none. If several vertices have the same row, one of them is chosen. Throws MisuseError if
  /// its length is not the number of vertices, or for a row below -1.
  Tensor output(const std::string& name, std::vector<std::int32_t> row_of,
                std::source_location from = std::source_location::current()) const;
  /// The output of the root of each graph, which is the vertex that is no child of another: a row for each graph, in
  /// their order. Pushes the op that collects it; get() and argmax() of the result wait. Throws MisuseError for an
  /// unknown name, and for a graph with several roots or without vertices; for such graphs, pass rows to output().
  Tensor at_roots(const std::string& name, std::source_location from = std::source_location::current()) const;
  /// The gradient of a given tensor, in its shape. Pushes the ops that add it up. Throws MisuseError for an unknown
  /// name, and before the minibatch is differentiated.
  Tensor gradient(const std::string& name, std::source_location from = std::source_location::current()) const;

 private:
  friend class Runner;
  friend class lazy::Epochs;
  explicit Minibatch(std::shared_ptr<Execution> execution) : execution_(std::move(execution)) {}

  std::shared_ptr<Execution> execution_;
};

/// An output whose gradient will be passed to backward().
struct Announced {
  std::string output = {};
  /// For each vertex, in the order of graphs and vertices, its row of the gradient; several vertices may share one. If
  /// empty, vertex i has row i, so the gradient must have a row for each vertex; for a minibatch without vertices, any
  /// number of rows is accepted.
  std::vector<std::int32_t> row_of = {};
};

/// A minibatch as schedules see it: in groups of consecutive samples, whose batches are separate. A value.
struct GroupedMinibatch {
  std::vector<std::string> types = {};  ///< a readable name of each vertex type: "list, with children"
  /// Their costs are floating point operations of a vertex with one edge, forward and backward: an estimate.
  std::vector<TypedGraph> groups = {};
};

/// A loss is infinite or NaN. Thrown by the op that adds up the losses of a minibatch, so it is the root of the OpError
/// that waits for these losses throw. The text names the vertex, and where the first such value comes from.
class NotFiniteError : public Error {
 public:
  using Error::Error;
};

}  // namespace windrow
