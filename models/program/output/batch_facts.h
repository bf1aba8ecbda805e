// How the vertices of minibatches share batches, and why they need several.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "windrow/models/workload.h"

namespace windrow::program {

/// Sums over minibatches. A value.
struct BatchFacts {
  struct Type {
    std::string name;
    std::int64_t vertices = 0, batches = 0;
    std::int64_t flops = 0;  ///< of a vertex, forward and backward: an estimate
  };
  std::int64_t minibatches = 0, vertices = 0, batches = 0, groups = 0;
  std::vector<Type> types = {};  ///< that occur
  /// Why there are so many batches; the sum is `batches`.
  struct Causes {
    std::int64_t types = 0;         ///< one for each type that occurs: a batch has one type
    std::int64_t dependencies = 0;  ///< more that every schedule needs: vertices that depend on others of their type
    std::int64_t schedule = 0;      ///< more with this schedule
    std::int64_t groups = 0;        ///< more because samples are divided into groups, for several workers
  } causes = {};
  /// Of the path of dependent vertices with the most work, in each minibatch: its vertices, its work, and the work of
  /// all vertices.
  std::int64_t path_vertices = 0;
  double path_flops = 0, flops = 0;
};

/// Adds a minibatch. The types of all minibatches must be those of one runner.
void add(BatchFacts& to, const GroupedMinibatch& minibatch, SchedulePolicy policy);

struct FactsOptions {
  RunnerOptions runner;
  std::size_t minibatch, most;  ///< samples per minibatch; minibatches
};
/// The facts of the first minibatches of the training set, in the order of the data. Empty for a network whose graphs
/// are built only as the program runs.
BatchFacts batch_facts(const Workload& workload, const FactsOptions& options);

/// All groups as one graph.
TypedGraph joined(const std::vector<TypedGraph>& groups);

}  // namespace windrow::program
