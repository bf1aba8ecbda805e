// What the plug-in library provides: the part of this room that nvcc compiles, which links the CUDA runtime and cuBLAS.
//
// The plug-in links no library of ours, so that it fits every program; the rest of this room opens it by name, and
// calls it through this table.
#pragma once

#include <cstddef>

#include "windrow/memory/allocator.h"
#include "windrow/ops/kernel.h"

namespace windrow::cuda {

/// A stream, with a handle of cuBLAS.
struct Queue;
/// An event of the CUDA runtime.
struct Event;

/// Errors of the CUDA runtime that are treated specially. Others are its own numbers.
enum Result : int {
  success = 0,
  out_of_memory = 2,
  driver_too_old = 35,
  devices_unavailable = 46,
  no_device = 100,
  not_ready = 600,
};

struct DeviceFacts {
  char name[256];
  int major, minor;  ///< compute capability
  int multiprocessors;
  std::size_t memory;  ///< bytes
};

struct KernelEntry {
  const char* op;
  int (*run)(const KernelCall<float>& call, const Queue& queue);
  /// Null: the kernel needs none.
  std::size_t (*workspace)(const KernelCall<float>& call);
};

/// Functions that return int return an error of the CUDA runtime, or success. None throws. Threads: all may be called
/// from any thread; those that issue work on one queue, by one thread at a time.
struct Plugin {
  static constexpr int current_version = 1;
  /// Of this table. It stays the first member.
  int version;
  /// The architectures for which kernels are compiled, such as "80 90".
  const char* architectures;

  /// A text for people, with the name of the error.
  const char* (*text)(int error);
  /// Such as 13000 for 13.0; a driver's version is 0 if there is no driver.
  int (*versions)(int* driver, int* runtime);
  int (*count_devices)(int* count);
  int (*facts)(int device, DeviceFacts* facts);
  /// Bytes of device memory that are free, of the thread's device.
  int (*free_memory)(std::size_t* bytes);
  int (*device)(int* device);
  int (*set_device)(int device);
  /// Returns the error of the last call on this thread, and resets it unless the device is lost.
  int (*take_error)();

  int (*make_queue)(int device, bool urgent, Queue** made);
  /// Its cudaStream_t.
  void* (*stream)(const Queue* queue);
  /// Waits for the work of the queue.
  int (*end_queue)(Queue* queue);
  int (*wait_for_event)(Queue* queue, Event* event);
  int (*make_event)(Event** made);
  int (*end_event)(Event* event);
  int (*record)(Event* event, Queue* queue);
  /// Returns not_ready while work before the event remains.
  int (*query)(Event* event);

  int (*allocate)(void** start, std::size_t bytes);
  int (*free)(void* start);
  /// Memory of the host that devices copy from and to without the host.
  int (*allocate_pinned)(void** start, std::size_t bytes);
  int (*free_pinned)(void* start);
  int (*copy)(Queue* queue, void* to, const void* from, const CopyShape* shape);
  int (*clear)(Queue* queue, void* start, std::size_t bytes);

  /// Ends with an entry whose op is null.
  const KernelEntry* kernels;
};

}  // namespace windrow::cuda

/// The only symbol of the library that is called by name.
extern "C" const windrow::cuda::Plugin* windrow_cuda_plugin();
