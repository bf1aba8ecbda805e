// What the files of the fake runtime share about calls.
#pragma once

#include <cuda_runtime_api.h>

#include <unordered_map>

#include "cuda/plugin/host_team.h"
#include "world.h"

namespace windrow::fake {

inline constexpr int illegal_address = cudaErrorIllegalAddress;

/// A kernel that compiler.cc has made. Its one parameter is a struct, which host code passes by its address.
struct CompiledKernel {
  using Add = void(void* to, const void* start, long long rows, long long width, long long stride, int writes);

  std::string name;
  void* library = nullptr;
  std::size_t size = 0;  ///< of the struct
  int shared_bytes = 0;  ///< allowed
  void (*run)(const void* argument) = nullptr;
  void (*accesses)(const void* argument, void* to, Add* add) = nullptr;
  /// Sets what a kernel sees of its block and thread.
  void (*thread)(unsigned block, unsigned blocks, unsigned thread, unsigned threads) = nullptr;
};

/// What calls leave behind; guarded by the world's mutex.
struct Known {
  std::unordered_map<const void*, const cuda::HostKernel*> kernels;
  std::map<const void*, CompiledKernel> compiled;          // by handle
  std::map<int, std::unique_ptr<Stream>> default_streams;  // by device
  std::map<std::uintptr_t, std::size_t> pinned;            // size by address
};
Known& known();

/// The result of a call: notes an error as the thread's last one.
cudaError_t returns(int error);

/// What all calls but a few do first.
#define WINDROW_BEGIN_CALL() \
  Call call;                 \
  if (const int injected = call.begin(); injected != 0) return returns(injected)

/// The stream of a handle; for null the default stream of the current device.
Stream& stream_of(void* handle);
/// Issues work with the accesses that it makes. Work of the default stream is after that of all blocking streams, and
/// theirs is after its. Null if the stream captures it.
TaskPtr issue(Stream& stream, std::string name, const std::vector<cuda::Access>& accesses, std::function<void()> work,
              std::vector<TaskPtr> after = {}, const void* library = nullptr);
/// Waits for all work of a device.
void wait_for_device(int device, std::unique_lock<std::mutex>& lock);

}  // namespace windrow::fake
