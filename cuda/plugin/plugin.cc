#include "plugin.h"

#include <cuda.h>

#include <cstdio>
#include <mutex>
#include <new>

#include "kernels.h"
#include "queue.h"
#include "ranges.h"

namespace windrow::cuda {
namespace {

cudaEvent_t native(Event* event) { return reinterpret_cast<cudaEvent_t>(event); }

const char* text(int error) {
  thread_local char made[512];
  const auto code = static_cast<cudaError_t>(error);
  std::snprintf(made, sizeof made, "%s (%s)", cudaGetErrorString(code), cudaGetErrorName(code));
  return made;
}

int versions(int* driver, int* runtime) {
  const int error = cudaDriverGetVersion(driver);
  return error != success ? error : cudaRuntimeGetVersion(runtime);
}

int count_devices(int* count) {
  const int error = cudaGetDeviceCount(count);
  cudaGetLastError();
  return error;
}

int facts(int device, DeviceFacts* facts) {
  cudaDeviceProp properties;
  if (const int error = cudaGetDeviceProperties(&properties, device); error != success) return error;
  std::snprintf(facts->name, sizeof facts->name, "%s", properties.name);
  facts->major = properties.major;
  facts->minor = properties.minor;
  facts->memory = properties.totalGlobalMem;
  facts->teams_together = properties.cooperativeLaunch == 0 ? 0 : properties.multiProcessorCount;
  facts->shared_bytes = properties.sharedMemPerBlockOptin;
  return success;
}

/// The runtime cannot tell which devices are in use. The driver can, and the runtime returns a pointer to its function.
int restore_device(int device) {
  static auto* const state_of = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &found, 7000, cudaEnableDefault, &result);
    return reinterpret_cast<CUresult (*)(CUdevice, unsigned*, int*)>(found);
  }();
  unsigned flags = 0;
  int active = 1;
  if (state_of != nullptr && state_of(device, &flags, &active) == CUDA_SUCCESS && active == 0) return success;
  return cudaSetDevice(device);
}

int free_memory(std::size_t* bytes) {
  std::size_t total = 0;
  return cudaMemGetInfo(bytes, &total);
}

/// The last kernel of a device whose teams wait for each other. Such kernels of two queues run one after the other:
/// otherwise each could occupy a part of the device, and wait for teams that have no place.
struct Together {
  std::mutex mutex;
  const Queue* queue = nullptr;
  cudaEvent_t done = nullptr;
};
Together* together_on(int device) {
  static Together all[64];
  return device < 64 ? &all[device] : nullptr;
}

int end_queue(Queue* queue) {
  const int waited = queue->stream == nullptr ? cudaSuccess : cudaStreamSynchronize(queue->stream);
  if (queue->blas != nullptr) cublasDestroy(queue->blas);
  if (queue->workspace != nullptr) cudaFree(queue->workspace);
  if (queue->stream != nullptr) cudaStreamDestroy(queue->stream);
  if (Together* const together = together_on(queue->device)) {
    std::lock_guard lock(together->mutex);
    if (together->queue == queue) together->queue = nullptr;
  }
  delete queue;
  return waited;
}

/// The stream is non-blocking, so that it does not wait for work of other code on the default stream.
int make_queue(int device, const QueueOptions* options, Queue** made) {
  constexpr cublasComputeType_t compute[] = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32,
                                             CUBLAS_COMPUTE_32F_FAST_16BF};
  auto* const queue =
      new (std::nothrow) Queue{.device = device, .compute = compute[static_cast<int>(options->products)]};
  if (queue == nullptr) return cudaErrorMemoryAllocation;
  int least = 0, greatest = 0;
  cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&queue->multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error == cudaSuccess) {
    error = cudaStreamCreateWithPriority(&queue->stream, cudaStreamNonBlocking, options->urgent ? greatest : least);
  }
  if (error == cudaSuccess && options->multiplies) error = static_cast<cudaError_t>(prepare_products(*queue));
  if (error != cudaSuccess) {
    end_queue(queue);
    return error;
  }
  *made = queue;
  return success;
}

int wait_for_event(Queue* queue, Event* event) { return cudaStreamWaitEvent(queue->stream, native(event), 0); }

int make_event(Event** made) {
  return cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(made), cudaEventDisableTiming);
}

int make_clock(Event** made) { return cudaEventCreate(reinterpret_cast<cudaEvent_t*>(made)); }

int record_now(Event* clock) {
  cudaStream_t idle = nullptr;
  cudaError_t error = cudaStreamCreateWithPriority(&idle, cudaStreamNonBlocking, 0);
  if (error != cudaSuccess) return error;
  error = cudaEventRecord(native(clock), idle);
  if (error == cudaSuccess) error = cudaStreamSynchronize(idle);
  cudaStreamDestroy(idle);
  return error;
}

int copy(Queue* queue, void* to, const void* from, const CopyShape* shape) {
  if (shape->rows == 0 || shape->width == 0) return success;
  const bool contiguous = shape->rows == 1 || (shape->to_stride == shape->width && shape->from_stride == shape->width);
  if (contiguous) return cudaMemcpyAsync(to, from, shape->rows * shape->width, cudaMemcpyDefault, queue->stream);
  return cudaMemcpy2DAsync(to, shape->to_stride, from, shape->from_stride, shape->width, shape->rows, cudaMemcpyDefault,
                           queue->stream);
}

int load(const char* code, Module** made) {
  return cudaLibraryLoadData(reinterpret_cast<cudaLibrary_t*>(made), code, nullptr, nullptr, 0, nullptr, nullptr, 0);
}
int function(Module* module, const char* name, Function** found) {
  return cudaLibraryGetKernel(reinterpret_cast<cudaKernel_t*>(found), reinterpret_cast<cudaLibrary_t>(module), name);
}

int launch_function(Queue* queue, Function* function, Index elements, void* argument) {
  if (elements == 0) return success;
  const LaunchShape shape = shape_for_elements(*queue, elements);
  return cudaLaunchKernel(reinterpret_cast<const void*>(function), dim3(static_cast<unsigned>(shape.teams)),
                          dim3(static_cast<unsigned>(shape.threads)), &argument, 0, queue->stream);
}

int allow_shared(Function* function, std::size_t shared_bytes, int device) {
  return cudaKernelSetAttributeForDevice(reinterpret_cast<cudaKernel_t>(function),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes),
                                         device);
}

int launch_together(Queue* queue, Function* function, int teams, std::size_t shared_bytes, void* argument) {
  const auto launch = [&] {
    return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(function), dim3(static_cast<unsigned>(teams)),
                                       dim3(most_threads), &argument, shared_bytes, queue->stream);
  };
  Together* const last = queue->captures ? nullptr : together_on(queue->device);
  if (last == nullptr) return launch();
  std::lock_guard lock(last->mutex);
  cudaError_t error = cudaSuccess;
  if (last->done == nullptr) error = cudaEventCreateWithFlags(&last->done, cudaEventDisableTiming);
  const bool waits = last->queue != nullptr && last->queue != queue;
  if (error == cudaSuccess && waits) error = cudaStreamWaitEvent(queue->stream, last->done, 0);
  if (error == cudaSuccess) error = launch();
  if (error != cudaSuccess) return error;
  last->queue = queue;
  return cudaEventRecord(last->done, queue->stream);
}

// Graphs, made by stream capture.

/// The workspace size that cuBLAS recommends for the newest devices.
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

cudaGraph_t native(const Graph* graph) { return reinterpret_cast<cudaGraph_t>(const_cast<Graph*>(graph)); }
cudaGraphExec_t native(GraphExec* exec) { return reinterpret_cast<cudaGraphExec_t>(exec); }

/// Unless the caller provides a workspace, cuBLAS allocates one in the graph, and such graphs cannot be updated.
int prepare_capture(Queue* queue) {
  if (const int error = prepare_products(*queue); error != success) return error;
  if (const cudaError_t error = cudaMalloc(&queue->workspace, workspace_bytes); error != cudaSuccess) return error;
  return of_blas(cublasSetWorkspace(queue->blas, queue->workspace, workspace_bytes));
}

/// Relaxed: the thread may allocate memory meanwhile.
int begin_capture(Queue* queue) {
  const cudaError_t error = cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeRelaxed);
  queue->captures = error == cudaSuccess;
  return error;
}

int end_capture(Queue* queue, Graph** made, std::size_t* calls) {
  queue->captures = false;
  cudaGraph_t graph = nullptr;
  cudaError_t error = cudaStreamEndCapture(queue->stream, &graph);
  if (error == cudaSuccess) error = cudaGraphGetNodes(graph, nullptr, calls);
  if (error == cudaSuccess) {
    *made = reinterpret_cast<Graph*>(graph);
  } else if (graph != nullptr) {
    cudaGraphDestroy(graph);
  }
  return error;
}

void free_graph(Graph* graph) { cudaGraphDestroy(native(graph)); }

void end_exec(GraphExec* exec) { cudaGraphExecDestroy(native(exec)); }

int launch_graph(Queue* queue, const Graph* graph, GraphExec** exec) {
  cudaGraphExecUpdateResultInfo why;
  if (*exec != nullptr && graph != nullptr && cudaGraphExecUpdate(native(*exec), native(graph), &why) != cudaSuccess) {
    cudaGetLastError();
    end_exec(*exec);
    *exec = nullptr;
  }
  if (*exec == nullptr) {
    cudaGraphExec_t made = nullptr;
    if (const cudaError_t error = cudaGraphInstantiate(&made, native(graph), 0); error != cudaSuccess) return error;
    *exec = reinterpret_cast<GraphExec*>(made);
  }
  return cudaGraphLaunch(native(*exec), queue->stream);
}

constexpr Plugin plugin = {
    .version = Plugin::current_version,
    .text = text,
    .versions = versions,
    .count_devices = count_devices,
    .facts = facts,
    .free_memory = free_memory,
    .device = [](int* device) -> int { return cudaGetDevice(device); },
    .set_device = [](int device) -> int { return cudaSetDevice(device); },
    .restore_device = restore_device,
    .begin_range = begin_range,
    .end_range = end_range,
    .take_error = []() -> int { return cudaGetLastError(); },
    .make_queue = make_queue,
    .stream = [](const Queue* queue) -> void* { return queue->stream; },
    .drain = [](Queue* queue) -> int { return cudaStreamSynchronize(queue->stream); },
    .end_queue = end_queue,
    .wait_for_event = wait_for_event,
    .make_event = make_event,
    .end_event = [](Event* event) -> int { return cudaEventDestroy(native(event)); },
    .record = [](Event* event, Queue* queue) -> int { return cudaEventRecord(native(event), queue->stream); },
    .query = [](Event* event) -> int { return cudaEventQuery(native(event)); },
    .make_clock = make_clock,
    .elapsed = [](Event* from, Event* to, float* milliseconds) -> int {
      return cudaEventElapsedTime(milliseconds, native(from), native(to));
    },
    .record_now = record_now,
    .allocate = [](void** start, std::size_t bytes) -> int { return cudaMalloc(start, bytes); },
    .free = [](void* start) -> int { return cudaFree(start); },
    .allocate_pinned = [](void** start, std::size_t bytes) -> int { return cudaMallocHost(start, bytes); },
    .free_pinned = [](void* start) -> int { return cudaFreeHost(start); },
    .copy = copy,
    .clear = [](Queue* queue, void* start, std::size_t bytes) -> int {
      return cudaMemsetAsync(start, 0, bytes, queue->stream);
    },
    .can_compile = can_compile,
    .compiler = compiler_facts,
    .compile = compile,
    .free_compiled = free_compiled,
    .load = load,
    .end_module = [](Module* module) -> int { return cudaLibraryUnload(reinterpret_cast<cudaLibrary_t>(module)); },
    .function = function,
    .launch = launch_function,
    .allow_shared = allow_shared,
    .launch_together = launch_together,
    .multiply = [](Queue* queue, const Products* products) -> int { return multiply(*queue, *products); },
    .prepare_capture = prepare_capture,
    .begin_capture = begin_capture,
    .end_capture = end_capture,
    .free_graph = free_graph,
    .launch_graph = launch_graph,
    .end_exec = end_exec,
    .kernel = find_kernel,
};

}  // namespace
}  // namespace windrow::cuda

const windrow::cuda::Plugin* windrow_cuda_plugin() { return &windrow::cuda::plugin; }
