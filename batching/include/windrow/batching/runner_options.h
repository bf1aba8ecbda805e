// The options and the statistics of a runner.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <map>
#include <string>

#include "windrow/batching/schedule.h"

namespace windrow {

/// Optimisations of a runner. Each can be switched off to measure its effect; results are equal up to rounding. Without
/// `lazy`, or with schedule policy serial, gradients of parameters are accumulated batch by batch in float, so sums
/// over very many batches lose digits.
struct Optimisations {
  bool specialisation = true;  ///< skips values that are zero because a vertex lacks a child or an index
  bool packing = true;         ///< deprecated: has no effect
  bool eager = true;           ///< computes values that depend on no child first, for all vertices of a group at once
  /// Computes values that no consumer depends on last, for all vertices of a group at once. Computes gradients of
  /// parameters over all vertices at once.
  bool lazy = true;
  bool slots = true;  ///< writes a state where its consumers read it; otherwise each consumer gathers copies
  /// Reads the states of children in place, if edges use them only in dot products with the vertex and in weighted
  /// sums; otherwise each edge gets a copy.
  bool in_place = true;
  bool sharing = true;  ///< values that are needed at different times share memory
  bool fusion = true;   ///< runs small steps one after the other over tiles of rows that stay in the cache
  /// Runs the work on all vertices at once (eager, lazy) concurrently with the levels, in blocks. A block finishes
  /// before a level needs it, or starts when its levels are done.
  bool streaming = true;
  bool splitting = true;  ///< cuts batches with the work of several ops by rows, for several workers

  friend bool operator==(const Optimisations&, const Optimisations&) = default;
};

struct RunnerOptions {
  /// The most unfinished minibatches when a call returns, including its own; at least 1. Each holds its memory.
  int ahead = 2;
  /// The most groups of samples that run concurrently, at least 1. There are fewer if a group would have less than
  /// about `group_flops` floating point operations (at least 1; each vertex counts as the most expensive one). There
  /// are at most two if batches would be narrow, because that costs more than further workers gain.
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
  /// and optional indices that a vertex has. The first types that this runner sees are computed without their missing
  /// children and indices. All later types are computed with all children and indices, with zeros for missing ones.
  /// Choose fewer for a function whose minibatches have few vertices of each type.
  std::int64_t own_types = 32;
  /// The most vertices of one batch, at least 1; 1 computes vertices one at a time, with the same kernels.
  std::int64_t batch_rows = INT64_MAX;
  Optimisations optimisations = {};
  /// Measures RunnerStats::times by reading the clock around each step, which is noticeable with small tiles.
  /// On the host only.
  bool time_steps = false;
};

/// Time and work of the steps of one operator.
struct OperatorTime {
  std::int64_t steps = 0, ns = 0;
  std::int64_t flops = 0;  ///< of products
  std::int64_t bytes = 0;  ///< read and written by other steps, see StepTimes
};
using OperatorTimes = std::map<std::string, OperatorTime>;  ///< by the name of the operator

/// Time spent in steps so far, added up over all workers, and bytes. Excludes gradient descent, and collecting outputs.
struct StepTimes {
  std::int64_t product_ns = 0;     ///< products with parameters, and their gradients
  std::int64_t arithmetic_ns = 0;  ///< other arithmetic
  /// Moving values: lookups, gathers, scatters, copies, fills, and sums of values that are scattered to one place.
  std::int64_t move_ns = 0;
  /// Bytes that these steps read and wrote: rows of operands and of results. Results that are added to count twice. A
  /// lookup counts the rows that it looks up.
  std::int64_t arithmetic_bytes = 0, move_bytes = 0;
  /// The same for each operator. Moves that are not operators have names such as "gather" and "scatter".
  OperatorTimes products = {}, arithmetic = {}, moves = {};

  StepTimes& operator+=(const StepTimes& other);
  StepTimes& operator-=(const StepTimes& earlier);
  friend StepTimes operator-(StepTimes later, const StepTimes& earlier) { return later -= earlier; }
};

/// Counted when minibatches are scheduled and not when they run, except `times`.
struct RunnerStats {
  std::int64_t minibatches = 0;
  std::int64_t prepared = 0;  ///< of these, those that found what Runner::prepare() had made
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

}  // namespace windrow
