// The host's back end, and the interpreter.
#include "execute/transposed.h"
#include "windrow/batching/backend.h"

namespace windrow {
namespace {

using Ops = Execution::Ops;

class Lowered final : public LoweredPlan {
 public:
  Lowered(const Device& device, std::shared_ptr<const Plan> plan, Ops ops)
      : LoweredPlan(std::move(plan)), device_(device), ops_(ops) {}

  std::vector<char> needed(const Layout& layout) const override {
    return ops_ == Ops::side_by_side ? needed_tensors(*plan_, layout) : LoweredPlan::needed(layout);
  }
  std::shared_ptr<Execution> start(Layout layout, std::vector<Tensor> tensors, std::vector<char> needed,
                                   Execution::Options options) const override {
    return std::make_shared<Execution>(device_, plan_, std::move(layout), std::move(tensors), std::move(options), ops_,
                                       std::move(needed));
  }

 private:
  const Device device_;
  const Ops ops_;
};

class HostBackend final : public Backend {
 public:
  bool takes_groups() const override { return true; }
  std::shared_ptr<const LoweredPlan> lower(const Device& device, std::shared_ptr<const Plan> plan) const override {
    if (!device.on_host()) {
      throw MisuseError("the host's back end computes in host memory, and device '" + device.name +
                        "' has memory of its own; expected another back end");
    }
    Plan lowered = with_kernels(*plan, device.kernels);
    find_copies(lowered, device.kernels);
    return std::make_shared<Lowered>(device, std::make_shared<const Plan>(std::move(lowered)), Ops::side_by_side);
  }
};

class Interpreter final : public Backend {
 public:
  PlanOptions options_for(PlanOptions wanted) const override { return Execution::options_for(wanted); }
  std::shared_ptr<const LoweredPlan> lower(const Device& device, std::shared_ptr<const Plan> plan) const override {
    auto lowered = std::make_shared<const Plan>(with_kernels(*plan, device.kernels));
    return std::make_shared<Lowered>(device, std::move(lowered), Ops::in_order);
  }
};

}  // namespace

std::vector<char> LoweredPlan::needed(const Layout&) const { return std::vector<char>(plan_->tensors.size(), 1); }

void LoweredPlan::place(Layout&, Index) const {}

std::shared_ptr<const Backend> host_backend() {
  static const auto backend = std::make_shared<const HostBackend>();
  return backend;
}

std::shared_ptr<const Backend> interpreter() {
  static const auto backend = std::make_shared<const Interpreter>();
  return backend;
}

std::shared_ptr<const Backend> backend_of(const Device& device) {
  if (device.backend != nullptr) return device.backend;
  return device.on_host() ? host_backend() : interpreter();
}

}  // namespace windrow
