#include <algorithm>
#include <atomic>
#include <cstdio>
#include <limits>

#include "backend/cuda_execution.h"

namespace windrow::cuda {
namespace {

class LoweredForCuda final : public LoweredPlan {
 public:
  LoweredForCuda(const Device& device, std::shared_ptr<const Plan> plan, std::shared_ptr<const CudaPlan> cuda)
      : LoweredPlan(std::move(plan)), device_(device), cuda_(std::move(cuda)) {}

  void place(Layout& layout, Index batch_rows) const override {
    const bool whole = batch_rows == std::numeric_limits<Index>::max();
    layout.memory = std::make_shared<const CudaMemory>(device_, *plan_, *cuda_, layout, whole);
  }
  std::shared_ptr<Execution> start(Layout layout, std::vector<Tensor> tensors, std::vector<char>,
                                   Execution::Options options) const override {
    if (layout.memory == nullptr) place(layout, options.batch_rows);
    return std::make_shared<CudaExecution>(device_, plan_, cuda_, std::move(layout), std::move(tensors), options);
  }

 private:
  const Device device_;
  const std::shared_ptr<const CudaPlan> cuda_;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::shared_ptr<Hardware> hardware, const DeviceOptions& options)
      : hardware_(std::move(hardware)), wanted_(options) {}

  PlanOptions options_for(PlanOptions wanted) const override {
    PlanOptions options = Execution::options_for(wanted);
    // Without a compiler, plans are interpreted; interpreted plans cannot use slots.
    if (!hardware_->cuda().can_compile()) return options;
    options.fusion = wanted.fusion;
    options.slots = true;
    return options;
  }

  std::shared_ptr<const LoweredPlan> lower(const Device& device, std::shared_ptr<const Plan> plan) const override {
    plan = std::make_shared<const Plan>(
        with_long_segments(without_copies(with_kernels(*plan, device.kernels), device.kernels)));
    auto made = std::make_shared<CudaPlan>();
    made->hardware = hardware_;
    made->levels = wanted_.levels;
    made->precision = wanted_.precision;
    if (wanted_.graphs) made->graphs = std::make_shared<Graphs>(hardware_->cuda());
    made->fused = fuse(*plan, hardware_->cuda().can_compile(), wanted_.levels == Levels::launches ? Grid{} : grid());
    std::vector<KernelNeeds> kernels;
    for (const FusedKernel& kernel : made->fused.kernels) kernels.push_back({kernel.name});
    for (std::size_t i = 0; i < made->fused.levels.size(); ++i) {
      if (!made->fused.levels[i]) continue;
      made->levels_function[i] = kernels.size();
      kernels.push_back({made->fused.levels[i]->name, made->fused.levels[i]->shared_bytes});
    }
    made->first_rows_function = kernels.size();
    for (const RowsKernel& kernel : made->fused.rows) kernels.push_back({kernel.name});
    if (!kernels.empty()) made->code = Code::of(*hardware_, source_of(made->fused, *plan), kernels);
    for (std::size_t i = 0; i < made->fused.levels.size(); ++i) {
      if (made->fused.levels[i] && made->code->function(made->levels_function[i]) == nullptr) {
        hardware_->refuse_teams_together();
      }
    }
    if (wanted_.levels == Levels::together || wanted_.levels == Levels::groups) say_what_is_missing(*made, *plan);
    return std::make_shared<LoweredForCuda>(device, std::move(plan), std::move(made));
  }

 private:
  /// Once: that levels are computed otherwise than asked for.
  void say_what_is_missing(const CudaPlan& made, const Plan& plan) const {
    for (std::size_t i = 0; i < made.fused.levels.size(); ++i) {
      const auto phase = static_cast<std::size_t>(i == 0 ? Phase::level : Phase::back_level);
      const auto has_levels = [&](const TypePlan& type) { return !type.phases[phase].empty(); };
      if (made.fused.levels[i] || std::ranges::none_of(plan.types, has_levels) || said_.exchange(true)) continue;
      std::fprintf(stderr,
                   "windrow: %s: levels of '%s' are computed by launches, since one kernel cannot compute them; see "
                   "docs/cuda.md\n",
                   hardware_->name().c_str(), plan.program.function->name.c_str());
    }
  }

  Grid grid() const {
    const DeviceFacts& facts = hardware_->facts();
    int driver = 0, runtime = 0;
    if (hardware_->cuda().versions(&driver, &runtime) != success) return {};
    // Kernels may have larger arguments since CUDA 12.1.
    return {.teams = facts.teams_together,
            .shared_bytes = facts.shared_bytes,
            .argument_bytes = std::min(driver, runtime) >= 12010 ? 32764u : 4096u,
            .groups = wanted_.levels == Levels::groups,
            .precision = wanted_.precision};
  }

  const std::shared_ptr<Hardware> hardware_;
  const DeviceOptions wanted_;
  mutable std::atomic<bool> said_{false};
};

}  // namespace

std::shared_ptr<const Backend> make_backend(std::shared_ptr<Hardware> hardware, const DeviceOptions& options) {
  return std::make_shared<const CudaBackend>(std::move(hardware), options);
}

}  // namespace windrow::cuda
