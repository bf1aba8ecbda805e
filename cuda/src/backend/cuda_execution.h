// Runs a minibatch on a CUDA device: by fused kernels where the plan has them, by the operators' kernels elsewhere.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/code.h"
#include "backend/cuda_memory.h"
#include "backend/fusion.h"
#include "backend/graphs.h"
#include "lane.h"
#include "windrow/batching/backend.h"
#include "windrow/batching/internal/execution.h"
#include "windrow/cuda/device.h"

namespace windrow::cuda {

/// The back end of CUDA devices. Fuses what the compiler of the CUDA toolkit can compile; interprets plans if there is
/// no compiler. In cuda_backend.cc.
std::shared_ptr<const Backend> make_backend(std::shared_ptr<Hardware> hardware, const DeviceOptions& options);

/// A plan with its kernels. Immutable.
struct CudaPlan {
  std::shared_ptr<Hardware> hardware;
  FusedPlan fused;
  const Code* code = nullptr;  ///< of the device; null if nothing is fused
  Levels levels = Levels::automatic;
  Precision precision = Precision::float32;
  std::shared_ptr<Graphs> graphs;                   ///< null: calls are issued one by one
  std::array<std::size_t, 2> levels_function = {};  ///< the function's number, by number in FusedPlan::levels
  std::size_t first_rows_function = 0;              ///< of those of FusedPlan::rows, which follow each other
};

/// Owns its resources; see Execution.
class CudaExecution final : public Execution {
 public:
  /// The layout's memory must be a CudaMemory.
  CudaExecution(const Device& device, std::shared_ptr<const Plan> plan, std::shared_ptr<const CudaPlan> cuda,
                Layout layout, std::vector<Tensor> tensors, const Options& options);

 private:
  Index stage_ends(Index batches_left) const override;
  void run_stage(const std::vector<PhaseRows>& stage, const At& at) override;
  void run(const Segment& segment, const At& at) override;
  /// The number of the phase's pass in FusedPlan::levels and CudaMemory::batches.
  static std::size_t number_of(Phase phase) { return phase < Phase::back_eager ? 0 : 1; }
  void run_levels(const std::vector<PhaseRows>& stage, const At& at);
  /// Throws TeamsRefused if the device refuses the kernel.
  void run_kernel_of_levels(std::size_t number, Lane* lane);
  void add_arguments(const FusedKernel& kernel, const At& at, std::vector<std::uint64_t>& to) const;
  static void add_matrix(const Matrix<const float>& matrix, std::vector<std::uint64_t>& to);
  void run_fused(const FusedKernel& kernel, Function* function, const At& at) const;
  void run_rows(const RowsKernel& kernel, const Segment& segment, Function* function, const At& at) const;
  void run_products(const Segment& segment, const FusedPart& part, const At& at);

  const std::shared_ptr<const CudaPlan> cuda_;
  const CudaMemory& words_;  // the layout's
};

}  // namespace windrow::cuda
