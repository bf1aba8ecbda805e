// Data-parallel training of one vertex function on several devices of a process, in one call a step.
//
//   const std::vector<windrow::Device> devices = windrow::host_devices(engine, 2);
//   windrow::Parameters first(devices[0], 1);
//   const windrow::VertexFunction network(...);           // with parameters of `first`
//   windrow::Parameters second(devices[1], first);        // a replica
//   windrow::Optimiser adam(first, windrow::Method::adam()), adam_of_second(second, windrow::Method::adam());
//
//   windrow::Replicas replicas(network, {{first, adam}, {second, adam_of_second}});
//   for (...) replicas.step(graphs);
//
// Contract
//   Steps    step() distributes the graphs over the devices by their vertices, computes gradients, adds them up, and
//            takes the step of each optimiser along the sum. It equals a step on one device, up to rounding. The graphs
//            are numbered, so dropout draws the same.
//   Numbers  As for DataParallel: all replicas keep equal bits, if their optimisers have equal options.
//   Waiting  As for Runner::differentiate(): step() pushes ops. It does so in a thread for each device.
//   Errors   A step that throws before any gradient is combined, such as for a graph of another function, has changed
//            no parameter. An exception after that breaks the group: later steps throw CommError.
//   Threads  One at a time, together with the parameters and optimisers.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <memory>
#include <source_location>
#include <vector>

#include "windrow/batching/runner.h"
#include "windrow/comm/local.h"
#include "windrow/training/data_parallel.h"
#include "windrow/training/optimiser.h"

namespace windrow {

struct ReplicasOptions {
  RunnerOptions runner = {};
  DataParallelOptions data_parallel = {};  ///< without `sharded`
  bool sharded = false;                    ///< see DataParallelOptions::sharded
  LocalGroupOptions group = {};
};

/// The parameters of one device, and their optimiser. References.
struct Replica {
  Parameters& parameters;
  Optimiser& optimiser;
};

/// An owner; must end before the parameters and optimisers.
class Replicas {
 public:
  /// Copies the values of the first replica to the others. Throws MisuseError without replicas, and as Runner,
  /// LocalGroup and DataParallel do: the first replica is the set that the function uses, and the others are replicas
  /// of it.
  Replicas(const VertexFunction& function, const std::vector<Replica>& replicas, const ReplicasOptions& options = {});
  ~Replicas();
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  std::size_t size() const { return members_.size(); }
  /// Takes a step along the gradient of the loss of all graphs, divided by their number. Returns the minibatch of each
  /// device: the loss is the sum of theirs. Throws MisuseError for 0 graphs, and as Runner::differentiate(),
  /// DataParallel::combine() and Optimiser::step() do.
  std::vector<Minibatch> step(const InputGraphs& graphs, std::source_location from = std::source_location::current());

 private:
  struct Member;

  const LocalGroup group_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace windrow
