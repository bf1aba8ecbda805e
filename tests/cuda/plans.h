// Plans of models, as a CUDA device would compute them.
#pragma once

#include "backend/levels.h"
#include "tests/engine/support.h"
#include "windrow/batching/backend.h"
#include "windrow/batching/internal/execution.h"
#include "windrow/models/trainer.h"
#include "windrow/models/workload.h"

namespace windrow::testing {

/// As an H100 has it.
inline constexpr cuda::Grid large{.teams = 132, .shared_bytes = 227 << 10};

/// Keeps the plans that a CUDA device would compute, and computes none of them.
class KeepingBackend final : public Backend {
 public:
  explicit KeepingBackend(std::vector<std::shared_ptr<const Plan>>& plans) : plans_(plans) {}
  PlanOptions options_for(PlanOptions wanted) const override {
    PlanOptions options = Execution::options_for(wanted);
    options.fusion = options.slots = true;
    return options;
  }
  std::shared_ptr<const LoweredPlan> lower(const Device&, std::shared_ptr<const Plan> plan) const override {
    plans_.push_back(plan);
    throw MisuseError("kept");
  }

 private:
  std::vector<std::shared_ptr<const Plan>>& plans_;
};

/// The plan with which a model is trained.
inline std::shared_ptr<const Plan> plan_of(const std::string& model, const std::string& cell = {}, Index hidden = 256) {
  std::vector<std::shared_ptr<const Plan>> plans;
  Engine engine({.policy = Policy::serial});
  Device device = host_device(engine);
  device.backend = std::make_shared<KeepingBackend>(plans);
  Workload workload =
      make_workload(model, device, {.seed = 1, .samples = 8, .cell = cell, .sizes = {{"hidden", hidden}}});
  Trainer trainer(device, workload, {.minibatch = 8, .optimiser = {.rate = 0.05}});
  error_of<Error>([&] { trainer.train(8); });
  EXPECT_FALSE(plans.empty()) << model;
  return plans.empty() ? nullptr : plans.front();
}

}  // namespace windrow::testing
