// A minibatch on a CUDA device: fused kernels where the plan has them, the device's own kernels elsewhere.
#pragma once

#include <memory>
#include <vector>

#include "backend/code.h"
#include "backend/fusion.h"
#include "lane.h"
#include "windrow/batching/backend/interpretation.h"

namespace windrow::cuda {

/// A plan with its kernels. Immutable.
struct CudaPlan {
  FusedPlan fused;
  const Code* code = nullptr;  ///< of the device; null if nothing is fused
};

/// Where the lists of a minibatch begin, in words: by type, and by number in FusedPlan::lists.
using ListBegins = std::vector<std::vector<std::size_t>>;

/// An owner; see Execution.
class CudaExecution final : public Interpretation {
 public:
  static std::shared_ptr<CudaExecution> make(const Device& device, std::shared_ptr<const Plan> plan,
                                             std::shared_ptr<const CudaPlan> cuda, Layout layout,
                                             std::vector<Tensor> tensors, Options options);

 private:
  CudaExecution(const Device& device, std::shared_ptr<const Plan> plan, std::shared_ptr<const CudaPlan> cuda,
                Layout layout, std::vector<Tensor> tensors, Options options, const More& more,
                std::shared_ptr<const ListBegins> lists);

  void run(const Segment& segment, const At& at) override;
  void run_fused(const FusedKernel& kernel, Function* function, const At& at) const;
  void run_products(const Segment& segment, const Part& part, const At& at);

  const std::shared_ptr<const CudaPlan> cuda_;
  const std::shared_ptr<const ListBegins> lists_;
};

}  // namespace windrow::cuda
