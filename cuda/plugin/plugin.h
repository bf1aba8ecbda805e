// What the plug-in library provides: the part of this room that nvcc compiles, which links the CUDA runtime and cuBLAS.
//
// The plug-in links no library of ours, so that it fits every program; the rest of this room opens it by name, and
// calls it through this table.
#pragma once

#include <cstddef>

#include "windrow/memory/allocator.h"
#include "windrow/ops/kernel.h"

namespace windrow::cuda {

/// A stream, and a handle of cuBLAS once it has products.
struct Queue;
/// An event of the CUDA runtime.
struct Event;
/// Code that was compiled when the program ran, on the devices; and a kernel of it.
struct Module;
struct Function;
/// Work that was captured instead of issued; and its executable form, which is launched.
struct Graph;
struct GraphExec;

/// Errors of the CUDA runtime that are treated specially. Others are its own numbers.
enum Result : int {
  success = 0,
  out_of_memory = 2,
  driver_too_old = 35,
  devices_unavailable = 46,
  /// The teams of a kernel that waits for all of them cannot run at the same time.
  teams_refused = 720,
  no_device = 100,
  not_ready = 600,
  /// Of compile(): the source has errors; there is no compiler.
  bad_source = -1,
  no_compiler = -2,
};

struct DeviceFacts {
  char name[256];
  int major, minor;          ///< compute capability
  std::size_t memory;        ///< bytes
  int teams_together;        ///< that can run at the same time and wait for each other
  std::size_t shared_bytes;  ///< the most of a team
};

/// What the result of compile() depends on, besides the source. Empty if there is no compiler.
struct CompilerFacts {
  char version[32];   ///< such as "NVRTC 13.0"
  char options[128];  ///< one after the other
};

/// What compile() has made, or the compiler's messages.
struct Compiled {
  char* start = nullptr;
  std::size_t bytes = 0;
};

/// A product of row-major matrices, `count` times: n x k and k x m to n x m, where `_transposed` matrices are stored
/// the other way. The operands of the next product begin `_step` elements further on.
struct Products {
  Matrix<const float> x, y;
  Matrix<float> out;
  bool x_transposed = false, y_transposed = false, add = false;
  Index count = 1, x_step = 0, y_step = 0, out_step = 0;
};

struct KernelEntry {
  const char* op = nullptr;
  int (*run)(const KernelCall<float>& call, const Queue& queue) = nullptr;
  /// Null: the kernel needs none.
  std::size_t (*workspace)(const KernelCall<float>& call) = nullptr;
};

/// How products round their operands; they are added up in float32 always.
enum class Rounding : int { none, tf32, bf16 };

struct QueueOptions {
  bool urgent = false;     ///< its work starts before that of other queues
  bool multiplies = true;  ///< otherwise its first product takes long, and may wait for the device
  Rounding products = Rounding::none;
};

/// Functions that return int return an error of the CUDA runtime, or success. None throws. Threads: all may be called
/// from any thread; those that issue work on one queue, by one thread at a time.
struct Plugin {
  static constexpr int current_version = 7;
  /// Of this table. It stays the first member.
  int version;

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
  /// The same, unless nobody uses that device yet: then the thread had not chosen it, and would create its context now.
  int (*restore_device)(int device);
  /// Returns the error of the last call on this thread, and resets it unless the device is lost.
  int (*take_error)();

  int (*make_queue)(int device, const QueueOptions* options, Queue** made);
  /// Its cudaStream_t.
  void* (*stream)(const Queue* queue);
  /// Waits for the work of the queue.
  int (*drain)(Queue* queue);
  /// The same, and ends it.
  int (*end_queue)(Queue* queue);
  int (*wait_for_event)(Queue* queue, Event* event);
  int (*make_event)(Event** made);
  int (*end_event)(Event* event);
  int (*record)(Event* event, Queue* queue);
  /// Returns not_ready while work before the event remains.
  int (*query)(Event* event);
  /// An event that notes when it is reached.
  int (*make_clock)(Event** made);
  /// The time between two of them that are reached.
  int (*elapsed)(Event* from, Event* to, float* milliseconds);
  /// Records one of them at once, whatever the thread's device does, and waits for it.
  int (*record_now)(Event* clock);

  int (*allocate)(void** start, std::size_t bytes);
  int (*free)(void* start);
  /// Memory of the host that devices copy from and to without the host.
  int (*allocate_pinned)(void** start, std::size_t bytes);
  int (*free_pinned)(void* start);
  int (*copy)(Queue* queue, void* to, const void* from, const CopyShape* shape);
  int (*clear)(Queue* queue, void* start, std::size_t bytes);

  /// Whether there is a compiler, NVRTC.
  bool (*can_compile)();
  /// What compile() uses for an architecture.
  void (*compiler)(int architecture, CompilerFacts* facts);
  /// Compiles CUDA C++ by NVRTC, for an architecture such as 90; to PTX if NVRTC does not know that. The caller frees
  /// the result, also after bad_source.
  int (*compile)(const char* source, int architecture, Compiled* made);
  void (*free_compiled)(Compiled* made);
  int (*load)(const char* code, Module** made);
  int (*end_module)(Module* module);
  /// A kernel that the source declares extern "C".
  int (*function)(Module* module, const char* name, Function** found);
  /// The kernel has one parameter, a struct, to which `argument` points.
  int (*launch)(Queue* queue, Function* function, Index elements, void* argument);
  /// Lets a kernel have so much shared memory for each of its teams.
  int (*allow_shared)(Function* function, std::size_t shared_bytes, int device);
  /// Launches a kernel whose teams run at the same time; argument as for launch().
  int (*launch_together)(Queue* queue, Function* function, int teams, std::size_t shared_bytes, void* argument);
  int (*multiply)(Queue* queue, const Products* products);

  /// Takes the memory that captures need: once, before the first.
  int (*prepare_capture)(Queue* queue);
  /// What is issued on the queue from now on is captured. No other thread may use the queue.
  int (*begin_capture)(Queue* queue);
  /// Ends the capture, whatever it returns. `calls`: of the graph, which the caller frees.
  int (*end_capture)(Queue* queue, Graph** made, std::size_t* calls);
  void (*free_graph)(Graph* graph);
  /// Launches a graph by `*exec`, which is updated; a new one takes its place if it is null or of another shape. A null
  /// graph launches `*exec` as it is.
  int (*launch_graph)(Queue* queue, const Graph* graph, GraphExec** exec);
  /// It may be in flight.
  void (*end_exec)(GraphExec* exec);

  /// By the operator's name. Null: there is none.
  const KernelEntry* (*kernel)(const char* op);
};

}  // namespace windrow::cuda

/// The only symbol of the library that is called by name.
extern "C" const windrow::cuda::Plugin* windrow_cuda_plugin();
