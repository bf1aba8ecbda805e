// The table of the plug-in library. nvcc compiles the plug-in, which links the CUDA runtime and cuBLAS.
//
// The plug-in links no library of ours, so that every program can load it. The rest of cuda/ opens it by name and calls
// it through this table.
#pragma once

#include <cstddef>

#include "windrow/memory/allocator.h"
#include "windrow/ops/kernel.h"

namespace windrow::cuda {

/// A stream; and a cuBLAS handle, made for its first product.
struct Queue;
/// An event of the CUDA runtime.
struct Event;
/// Code that was compiled at run time, loaded on the devices; and a kernel of it.
struct Module;
struct Function;
/// Work that was captured instead of issued; and its executable form for launches.
struct Graph;
struct GraphExec;

/// Errors of the CUDA runtime that need special treatment. All other errors have the runtime's numbers.
enum Result : int {
  success = 0,
  out_of_memory = 2,
  driver_too_old = 35,
  devices_unavailable = 46,
  /// A kernel whose teams wait for each other cannot run, because the device cannot run all teams at once.
  teams_refused = 720,
  no_device = 100,
  not_ready = 600,
  /// Results of compile(): the source has errors; there is no compiler.
  bad_source = -1,
  no_compiler = -2,
};

struct DeviceFacts {
  char name[256];
  int major, minor;          ///< compute capability
  std::size_t memory;        ///< bytes
  int teams_together;        ///< teams that can run at the same time and wait for each other
  std::size_t shared_bytes;  ///< the most that a team can have
};

/// What the result of compile() depends on besides the source. Empty strings if there is no compiler.
struct CompilerFacts {
  char version[32];   ///< such as "NVRTC 13.0"
  char options[128];  ///< one after the other
};

/// The code that compile() made, or the compiler's messages.
struct Compiled {
  char* start = nullptr;
  std::size_t bytes = 0;
};

/// `count` products of row-major matrices: n x k and k x m to n x m. `_transposed` matrices are stored transposed. The
/// operands of the next product begin `_step` elements further on.
struct Products {
  Matrix<const float> x, y;
  Matrix<float> out;
  bool x_transposed = false, y_transposed = false, add = false;
  Index count = 1, x_step = 0, y_step = 0, out_step = 0;
};

struct KernelEntry {
  const char* op = nullptr;
  int (*run)(const KernelCall<float>& call, const Queue& queue) = nullptr;
  /// Null if the kernel needs no workspace.
  std::size_t (*workspace)(const KernelCall<float>& call) = nullptr;
  /// Runs calls as Kernel::RunEach does, with few launches. Null: one by one.
  int (*run_each)(const KernelCall<float>* calls, std::size_t count, const Queue& queue) = nullptr;
};

/// How products round their operands. Their sums are always in float32.
enum class Rounding : int { none, tf32, bf16 };

struct QueueOptions {
  bool urgent = false;     ///< its work starts before that of other queues
  bool multiplies = true;  ///< false: its first product takes long, and may wait for the device
  Rounding products = Rounding::none;
};

/// Functions that return int return an error of the CUDA runtime, or success. None throws. Threads: any; but only one
/// thread at a time may issue work on a queue.
struct Plugin {
  static constexpr int current_version = 8;
  /// Version of this table. It must stay the first member.
  int version;

  /// A readable text with the name of the error.
  const char* (*text)(int error);
  /// 13000 means 13.0. The driver's version is 0 if there is no driver.
  int (*versions)(int* driver, int* runtime);
  int (*count_devices)(int* count);
  int (*facts)(int device, DeviceFacts* facts);
  /// Free memory of the thread's device, in bytes.
  int (*free_memory)(std::size_t* bytes);
  int (*device)(int* device);
  int (*set_device)(int device);
  /// The same, but does nothing if no code uses that device yet: the thread had not chosen it, and the call would
  /// create its context.
  int (*restore_device)(int device);
  /// Begins a range of the calling thread in NVIDIA's profilers, and ends the last one. They do nothing without one.
  void (*begin_range)(const char* name);
  void (*end_range)();
  /// Returns the error of the last call on this thread, and resets it unless the device is lost.
  int (*take_error)();

  int (*make_queue)(int device, const QueueOptions* options, Queue** made);
  /// Returns the queue's cudaStream_t.
  void* (*stream)(const Queue* queue);
  /// Waits for the work of the queue.
  int (*drain)(Queue* queue);
  /// Waits for the work of the queue and destroys it.
  int (*end_queue)(Queue* queue);
  int (*wait_for_event)(Queue* queue, Event* event);
  int (*make_event)(Event** made);
  int (*end_event)(Event* event);
  int (*record)(Event* event, Queue* queue);
  /// Returns not_ready while work before the event remains.
  int (*query)(Event* event);
  /// Makes an event that records the time at which it is reached.
  int (*make_clock)(Event** made);
  /// The time between two such events that have been reached.
  int (*elapsed)(Event* from, Event* to, float* milliseconds);
  /// Records such an event on the thread's device, independently of its queues, and waits for it.
  int (*record_now)(Event* clock);

  int (*allocate)(void** start, std::size_t bytes);
  int (*free)(void* start);
  /// Host memory that devices can copy from and to without the host's help.
  int (*allocate_pinned)(void** start, std::size_t bytes);
  int (*free_pinned)(void* start);
  int (*copy)(Queue* queue, void* to, const void* from, const CopyShape* shape);
  int (*clear)(Queue* queue, void* start, std::size_t bytes);

  /// Whether there is a compiler, NVRTC.
  bool (*can_compile)();
  /// The compiler and the options that compile() uses for an architecture.
  void (*compiler)(int architecture, CompilerFacts* facts);
  /// Compiles CUDA C++ with NVRTC for an architecture such as 90; to PTX if NVRTC does not know the architecture. The
  /// caller frees the result, also after bad_source.
  int (*compile)(const char* source, int architecture, Compiled* made);
  void (*free_compiled)(Compiled* made);
  int (*load)(const char* code, Module** made);
  int (*end_module)(Module* module);
  /// Finds a kernel that the source declares extern "C".
  int (*function)(Module* module, const char* name, Function** found);
  /// The kernel has one parameter, a struct, to which `argument` points.
  int (*launch)(Queue* queue, Function* function, Index elements, void* argument);
  /// Allows a kernel this much shared memory per team.
  int (*allow_shared)(Function* function, std::size_t shared_bytes, int device);
  /// Launches a kernel whose teams all run at the same time; `argument` is as for launch().
  int (*launch_together)(Queue* queue, Function* function, int teams, std::size_t shared_bytes, void* argument);
  int (*multiply)(Queue* queue, const Products* products);

  /// Allocates the memory that captures need. Called once, before the first capture.
  int (*prepare_capture)(Queue* queue);
  /// From now on, work that is issued on the queue is captured. No other thread may use the queue.
  int (*begin_capture)(Queue* queue);
  /// Ends the capture, even if it returns an error. `calls` is the number of calls in the graph. The caller frees the
  /// graph.
  int (*end_capture)(Queue* queue, Graph** made, std::size_t* calls);
  void (*free_graph)(Graph* graph);
  /// Updates `*exec` with the graph and launches it. If `*exec` is null or of another shape, a new one replaces it. A
  /// null graph launches `*exec` unchanged.
  int (*launch_graph)(Queue* queue, const Graph* graph, GraphExec** exec);
  /// Destroys `exec`, which may be in flight.
  void (*end_exec)(GraphExec* exec);

  /// The kernel of an operator, by name; null if there is none.
  const KernelEntry* (*kernel)(const char* op);
};

}  // namespace windrow::cuda

/// The only symbol of the library that is called by name.
extern "C" const windrow::cuda::Plugin* windrow_cuda_plugin();
