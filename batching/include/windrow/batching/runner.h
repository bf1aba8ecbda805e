// The runner: computes a vertex function over minibatches of graphs, in batches, on the engine.
//
//   windrow::Runner runner(host, cell, parameters);
//   windrow::Minibatch minibatch = runner.differentiate(graphs);
//   parameters.sgd(0.05);
//   double loss = minibatch.loss();  // waits
//
// Contract
//   Order    A minibatch reads parameters, and writes gradients, as of the ops pushed before it. Its own ops wait for
//            each other only where they must: samples are cut into groups that run side by side.
//   Numbers  The same calls give the same bits whatever the policy and the number of workers. Types of vertices that a
//            runner has seen before may change the order of sums, so that another history rounds otherwise.
//   Waiting  A call waits only until fewer than `ahead` minibatches are unfinished; so the next one is scheduled
//            while one runs, and no more than `ahead` take memory.
//   Errors   Misuse throws at the call. A failing op, or a loss that is not finite, poisons the minibatch, its
//            gradients and what is made of them; waits throw it, and so does the next call.
//   Threads  One at a time for each runner.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
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
struct Plan;

struct RunnerOptions {
  /// Unfinished minibatches that a call leaves behind it, itself among them; 1 or more. Each holds its memory.
  int ahead = 2;
  /// Groups of samples that run side by side, at most; fewer where a group would have less than `group_vertices`.
  int groups = 8;
  std::int64_t group_vertices = 1024;
  /// In which batches vertices are computed that others wait for; see schedule.h. Policy learned learns from the first
  /// minibatch, and anew where there are types of vertices that the runner has not seen before; policy serial makes all
  /// batches of one vertex.
  SchedulePolicy schedule = SchedulePolicy::level;
  /// The most vertices of one batch: 1 computes one vertex at a time, by the same kernels and without waiting.
  std::int64_t batch_rows = INT64_MAX;
};

/// Counted when minibatches are scheduled, not when they run.
struct RunnerStats {
  std::int64_t minibatches = 0;
  std::int64_t vertices = 0;
  std::int64_t batches = 0;         ///< fused runs of steps over rows of one type of vertex
  std::int64_t kernels = 0;         ///< steps of them, of which those that are not heavy run tile by tile
  std::int64_t ops = 0;             ///< engine ops, but for those of Minibatch::output
  std::int64_t multiply_flops = 0;  ///< floating point operations of products with rows of vertices
  std::int64_t schedule_ns = 0;     ///< host time to make layouts: rows, slots and inputs in their order
};

/// A handle to what one call computes. Must not be used after the engine is gone.
class Minibatch {
 public:
  std::int64_t vertices() const;
  /// Waits for the sum of the losses over all vertices. Throws OpError if the minibatch failed.
  double loss(std::source_location from = std::source_location::current()) const;
  /// What was pushed by that name: a row for each vertex, graph after graph, in the order of their vertices; zeros
  /// where the value is zero for a vertex's type. Pushes the op that collects it. Throws MisuseError for an unknown
  /// name.
  Tensor output(const std::string& name, std::source_location from = std::source_location::current()) const;

 private:
  friend class Runner;
  explicit Minibatch(std::shared_ptr<Batch> batch) : batch_(std::move(batch)) {}

  std::shared_ptr<Batch> batch_;
};

/// An owner; must end before the engine and the parameters.
class Runner {
 public:
  /// Throws MisuseError for options out of range, or if the function uses other parameters.
  Runner(const Device& device, const VertexFunction& function, Parameters& parameters, RunnerOptions options = {});
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  /// Pushes the computation of losses and outputs. Graphs are looked at during the call only.
  Minibatch run(std::span<const InputGraph* const> graphs, std::source_location from = std::source_location::current());
  /// The same, and of the gradients of the loss for all parameters. Throws MisuseError if the function has no loss, or
  /// an operator without a gradient.
  Minibatch differentiate(std::span<const InputGraph* const> graphs,
                          std::source_location from = std::source_location::current());

  RunnerStats stats() const { return stats_; }
  /// What would be computed for the types of vertices seen so far, step by step. For people.
  std::string describe() const;

 private:
  enum class Purpose { inference, training };
  const std::shared_ptr<const Plan>& plan_for(std::span<const InputGraph* const> graphs, Purpose purpose);
  Minibatch start(std::span<const InputGraph* const> graphs, Purpose purpose, std::source_location from);
  void hold_back(std::source_location from);
  std::vector<Tensor> tensors_of(const Plan& plan);
  void set_gradients(const Batch& batch, std::source_location from);

  Device device_;
  VertexFunction function_;
  Parameters& parameters_;
  RunnerOptions options_;
  std::vector<std::uint64_t> types_;      // all seen so far, sorted
  std::shared_ptr<const Plan> plans_[2];  // by purpose; null after a new type was seen
  std::optional<ScheduleTable> table_;    // the same
  std::deque<std::shared_ptr<Batch>> unfinished_;
  RunnerStats stats_;
};

}  // namespace windrow
