#include "windrow/batching/backend.h"
#include "windrow/batching/backend/interpretation.h"

namespace windrow {
namespace {

class LoweredForInterpreter final : public LoweredPlan {
 public:
  LoweredForInterpreter(const Device& device, std::shared_ptr<const Plan> plan)
      : LoweredPlan(std::move(plan)), device_(device) {}

  std::shared_ptr<Execution> start(Layout layout, std::vector<Tensor> tensors, std::vector<char>,
                                   Execution::Options options) const override {
    return std::make_shared<Interpretation>(device_, plan_, std::move(layout), std::move(tensors), std::move(options));
  }

 private:
  const Device device_;
};

class Interpreter final : public Backend {
 public:
  PlanOptions options_for(PlanOptions wanted) const override { return Interpretation::options_for(wanted); }
  std::shared_ptr<const LoweredPlan> lower(const Device& device, std::shared_ptr<const Plan> plan) const override {
    Interpretation::require_kernels(*plan, device.kernels);
    return std::make_shared<LoweredForInterpreter>(device, std::move(plan));
  }
};

}  // namespace

std::shared_ptr<const Backend> interpreter() {
  static const auto backend = std::make_shared<const Interpreter>();
  return backend;
}

}  // namespace windrow
