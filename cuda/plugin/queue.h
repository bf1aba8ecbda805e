// A queue: a stream with its cuBLAS handle. Also launches kernels on queues.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "host_team.h"
#include "team.h"

namespace windrow::cuda {

struct Queue {
  int device = 0;
  int multiprocessors = 1;
  cudaStream_t stream = nullptr;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  mutable cublasHandle_t blas = nullptr;  // made by the first product; one thread at a time issues work
  void* workspace = nullptr;              // of the handle; null if the handle allocates its own
  bool captures = false;                  // work instead of issuing it
};

/// Translates an error of cuBLAS, which has few kinds, to an error of the CUDA runtime.
inline cudaError_t of_blas(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return cudaSuccess;
    case CUBLAS_STATUS_ALLOC_FAILED:
      return cudaErrorMemoryAllocation;
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return cudaErrorInitializationError;
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return cudaErrorNoKernelImageForDevice;
    case CUBLAS_STATUS_INVALID_VALUE:
      return cudaErrorInvalidValue;
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return cudaErrorNotSupported;
    default:
      return cudaErrorLaunchFailure;
  }
}

/// The number of teams that run a kernel, the threads of a team, and its bytes of shared memory.
struct LaunchShape {
  Index teams;
  int threads = most_threads;
  std::size_t shared_bytes = 0;
};

/// Teams for `count` independent elements.
inline LaunchShape shape_for_elements(const Queue& queue, Index count) {
  const Index most = Index{queue.multiprocessors} * 8;
  return {std::min((count + most_threads - 1) / most_threads, most)};
}
/// One team per row, with a number of threads that suits the width.
inline LaunchShape shape_for_rows(const Queue& queue, Index rows, Index width) {
  const int threads = width <= 256 ? 32 : width <= 1024 ? 64 : most_threads;
  return {std::min(rows, Index{queue.multiprocessors} * 64), threads};
}

#ifdef __CUDACC__

template <class Kernel>
__global__ void __launch_bounds__(most_threads) run(const __grid_constant__ Kernel kernel) {
  DeviceTeam team;
  kernel(team);
}

template <class Kernel>
const HostKernel& host_kernel() {
  static const HostKernel made = {
      Kernel::name, sizeof(Kernel),
      [](const void* kernel, HostTeam& team) { (*static_cast<const Kernel*>(kernel))(team); },
      [](const void* kernel, Accesses& to) { static_cast<const Kernel*>(kernel)->accesses(to); }};
  return made;
}

/// Issues a kernel. Returns the error of the launch.
template <class Kernel>
cudaError_t launch(const Queue& queue, const LaunchShape& shape, const Kernel& kernel) {
  if (shape.teams == 0) return cudaSuccess;
  if (windrow_host_kernel != nullptr) {
    windrow_host_kernel(reinterpret_cast<const void*>(&run<Kernel>), &host_kernel<Kernel>());
  }
  run<Kernel>
      <<<static_cast<unsigned>(shape.teams), static_cast<unsigned>(shape.threads), shape.shared_bytes, queue.stream>>>(
          kernel);
  return cudaGetLastError();
}

#endif

}  // namespace windrow::cuda
