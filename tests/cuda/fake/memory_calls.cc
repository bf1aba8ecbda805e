// The functions of the runtime about memory and copies.
#include <new>

#include "runtime.h"

using namespace windrow::fake;
using windrow::cuda::Access;

namespace {

bool is_pinned(const void* address, std::size_t bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  auto found = known().pinned.upper_bound(at);
  return found != known().pinned.begin() && at + bytes <= (--found)->first + found->second;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** start, std::size_t bytes) {
  WINDROW_BEGIN_CALL();
  ++world().counters.allocations;
  TwiceMapped& memory = *world().memories[static_cast<std::size_t>(current_device())];
  const auto range = memory.take(bytes);
  if (!range) return returns(cudaErrorMemoryAllocation);
  std::memset(memory.contents(*range), 0xcd, range->size());
  *start = memory.address(*range);
  return cudaSuccess;
}

cudaError_t cudaFree(void* start) {
  WINDROW_BEGIN_CALL();
  if (start == nullptr) return cudaSuccess;
  auto& memories = world().memories;
  for (std::size_t device = 0; device < memories.size(); ++device) {
    if (!memories[device]->contains(start)) continue;
    wait_for_device(static_cast<int>(device), call.lock);
    const auto range = memories[device]->find(start);
    if (!range) break;
    std::memset(memories[device]->contents(*range), 0xcd, range->size());
    memories[device]->give_back(*range);
    world().checker.forget(start, range->size());
    return cudaSuccess;
  }
  world().report("memory is freed that was not allocated");
  return returns(cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void** start, std::size_t bytes) {
  WINDROW_BEGIN_CALL();
  ++world().counters.pinned_allocations;
  *start = ::operator new (bytes, std::align_val_t{256}, std::nothrow);
  if (*start == nullptr) return returns(cudaErrorMemoryAllocation);
  known().pinned.emplace(reinterpret_cast<std::uintptr_t>(*start), bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* start) {
  Call call;
  const int error = call.begin();
  const auto found = known().pinned.find(reinterpret_cast<std::uintptr_t>(start));
  if (found != known().pinned.end()) world().checker.forget(start, found->second);
  known().pinned.erase(reinterpret_cast<std::uintptr_t>(start));
  ::operator delete (start, std::align_val_t{256});
  return returns(error);
}

/// A copy is named by its direction. One to or from memory that is not pinned makes the host wait.
static cudaError_t copy(void* to, std::size_t to_stride, const void* from, std::size_t from_stride, std::size_t width,
                        std::size_t rows, Stream& stream, Call& call) {
  ++world().counters.copies;
  if (width == 0 || rows == 0) return cudaSuccess;
  const char* const name =
      memory_of(to) != nullptr ? memory_of(from) != nullptr ? "a copy" : "an upload" : "a download";
  const auto pageable = [&](const void* start, std::size_t stride) {
    return memory_of(start) == nullptr && !is_pinned(start, (rows - 1) * stride + width);
  };
  const bool waits = pageable(to, to_stride) || pageable(from, from_stride);
  const std::vector<Access> accesses = {{from, rows, width, from_stride, false}, {to, rows, width, to_stride, true}};
  const TaskPtr task = issue(stream, name, accesses, [=] {
    for (std::size_t row = 0; row < rows; ++row) {
      std::memcpy(static_cast<std::byte*>(mapped(to)) + row * to_stride,
                  static_cast<const std::byte*>(mapped(from)) + row * from_stride, width);
    }
  });
  if (!waits) return cudaSuccess;
  if (task == nullptr) return returns(cudaErrorStreamCaptureUnsupported);
  ++world().counters.synchronisations;
  wait_for(task, call.lock);
  return returns(Call::error_of_device());
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  WINDROW_BEGIN_CALL();
  return copy(to, bytes, from, bytes, bytes, 1, stream_of(stream), call);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_stride, const void* from, std::size_t from_stride,
                              std::size_t width, std::size_t rows, cudaMemcpyKind, cudaStream_t stream) {
  WINDROW_BEGIN_CALL();
  if (to_stride < width || from_stride < width) return returns(cudaErrorInvalidPitchValue);
  return copy(to, to_stride, from, from_stride, width, rows, stream_of(stream), call);
}
/// Waits for the work of the default stream, and not for that of non-blocking streams.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  WINDROW_BEGIN_CALL();
  const cudaError_t error = copy(to, bytes, from, bytes, bytes, 1, stream_of(nullptr), call);
  wait_for(TaskPtr(stream_of(nullptr).last()), call.lock);
  return error;
}
cudaError_t cudaMemsetAsync(void* start, int value, std::size_t bytes, cudaStream_t stream) {
  WINDROW_BEGIN_CALL();
  if (bytes == 0) return cudaSuccess;
  issue(stream_of(stream), "a clear", {{start, 1, bytes, bytes, true}},
        [=] { std::memset(mapped(start), value, bytes); });
  return cudaSuccess;
}

}  // extern "C"
