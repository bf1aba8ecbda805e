// The interface by which a device computes minibatches. Start here to write a back end for your own device.
//
// A runner makes a Plan (internal/plan.h) of a vertex function, which its back end lowers once. For each minibatch the
// runner makes a Layout (internal/layout.h), and the lowered plan starts an Execution (internal/execution.h): an object
// that pushes the ops of each stage. For a device without its own back end, plans are interpreted step by step through
// its kernel table. These headers are for back ends; programs need none of them.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <memory>
#include <vector>

#include "windrow/batching/internal/execution.h"
#include "windrow/batching/internal/layout.h"
#include "windrow/batching/internal/plan.h"
#include "windrow/ops/device.h"

namespace windrow {

/// A plan that a back end has lowered, for any number of minibatches. Used by the thread that calls the runner; place()
/// also by others.
class LoweredPlan {
 public:
  virtual ~LoweredPlan() = default;
  const std::shared_ptr<const Plan>& plan() const { return plan_; }
  /// By number of the tensor: whether a minibatch needs it. A derived tensor that is not needed gets no rows. By
  /// default, all tensors are needed.
  virtual std::vector<char> needed(const Layout& layout) const;
  /// Makes the layout's memory, if that can be done before start(): Runner::prepare() calls it on a thread of the
  /// engine. By default does nothing; start() is then given a layout without memory. `batch_rows`: see RunnerOptions.
  virtual void place(Layout& layout, Index batch_rows) const;
  /// Makes an execution. Pushes no ops. `tensors` are those of the plan, and `needed` is what needed() returned.
  virtual std::shared_ptr<Execution> start(Layout layout, std::vector<Tensor> tensors, std::vector<char> needed,
                                           Execution::Options options) const = 0;

 protected:
  explicit LoweredPlan(std::shared_ptr<const Plan> plan) : plan_(std::move(plan)) {}

  const std::shared_ptr<const Plan> plan_;
};

/// Shared by all runners of a device (Device::backend). Threads: all members may be called from any thread.
class Backend {
 public:
  virtual ~Backend() = default;
  /// The options of the plans that it lowers: `wanted`, without the optimisations that it does not implement.
  virtual PlanOptions options_for(PlanOptions wanted) const { return wanted; }
  /// Whether layouts may divide a minibatch into groups of samples (RunnerOptions::groups).
  virtual bool takes_groups() const { return false; }
  /// Throws MisuseError for a device on which it cannot compute, and for an operator for which the device has no
  /// kernel.
  virtual std::shared_ptr<const LoweredPlan> lower(const Device& device, std::shared_ptr<const Plan> plan) const = 0;
};

/// Computes on the host's threads: tiles that stay in the cache, groups of samples side by side, packed copies.
std::shared_ptr<const Backend> host_backend();
/// Computes on any device, one kernel after the other. Slow; other back ends are compared to it.
std::shared_ptr<const Backend> interpreter();
/// Device::backend, if it has one; else the host's on the host, and the interpreter on any other device.
std::shared_ptr<const Backend> backend_of(const Device& device);

}  // namespace windrow
