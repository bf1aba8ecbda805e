#include "host/host_execution.h"
#include "host/needed.h"
#include "windrow/batching/backend.h"

namespace windrow {
namespace {

class LoweredForHost final : public LoweredPlan {
 public:
  LoweredForHost(const Device& device, std::shared_ptr<const Plan> plan)
      : LoweredPlan(std::move(plan)),
        device_(device),
        lowered_(std::make_shared<const HostPlan>(windrow::lower(*plan_, device.kernels))) {}

  std::vector<char> needed(const Layout& layout) const override { return needed_tensors(*plan_, *lowered_, layout); }
  std::shared_ptr<Execution> start(Layout layout, std::vector<Tensor> tensors, std::vector<char> needed,
                                   Execution::Options options) const override {
    return std::make_shared<HostExecution>(device_, plan_, lowered_, std::move(layout), std::move(tensors),
                                           std::move(needed), std::move(options));
  }

 private:
  const Device device_;
  const std::shared_ptr<const HostPlan> lowered_;
};

class HostBackend final : public Backend {
 public:
  bool takes_groups() const override { return true; }
  std::shared_ptr<const LoweredPlan> lower(const Device& device, std::shared_ptr<const Plan> plan) const override {
    if (!device.on_host()) {
      throw MisuseError("the host's back end computes in host memory, and device '" + device.name +
                        "' has memory of its own; expected another back end");
    }
    return std::make_shared<LoweredForHost>(device, std::move(plan));
  }
};

}  // namespace

std::shared_ptr<const Backend> host_backend() {
  static const auto backend = std::make_shared<const HostBackend>();
  return backend;
}

}  // namespace windrow
