// The functions of the runtime about graphs. A graph is a chain, made by the capture of one stream.

#include "runtime.h"

using namespace windrow::fake;

static Capture& captured(cudaGraph_t graph) { return *reinterpret_cast<Capture*>(graph); }
static Capture& captured(cudaGraphExec_t exec) { return *reinterpret_cast<Capture*>(exec); }

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  WINDROW_BEGIN_CALL();
  Stream& stream = stream_of(handle);
  if (handle == nullptr || stream.capture) return returns(cudaErrorStreamCaptureUnsupported);
  stream.capture.emplace();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  Call call;
  Stream& stream = stream_of(handle);
  if (!stream.capture) return returns(cudaErrorStreamCaptureUnsupported);
  auto made = std::make_unique<Capture>(std::move(*stream.capture));
  stream.capture.reset();
  if (const int injected = call.begin(); injected != 0) return returns(injected);
  *graph = reinterpret_cast<cudaGraph_t>(made.release());
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  WINDROW_BEGIN_CALL();
  *count = captured(graph).size();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete &captured(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  WINDROW_BEGIN_CALL();
  ++world().counters.graphs_made;
  *exec = reinterpret_cast<cudaGraphExec_t>(new Capture(captured(graph)));
  return cudaSuccess;
}

/// Kernels may change, and their parameters; the kinds of nodes may not.
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo*) {
  WINDROW_BEGIN_CALL();
  const auto kind = [](const Captured& one) {
    const bool kernel = one.name.starts_with("kernel ") || one.name.starts_with("product");
    return one.together ? "kernels together" : kernel ? "a product" : one.name;
  };
  if (!std::ranges::equal(captured(exec), captured(graph), {}, kind, kind)) {
    return returns(cudaErrorGraphExecUpdateFailure);
  }
  captured(exec) = captured(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  WINDROW_BEGIN_CALL();
  ++world().counters.graphs;
  for (const Captured& one : captured(exec)) {
    issue(stream_of(handle), one.name, one.accesses, one.work, {}, one.library);
  }
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete &captured(exec);
  return cudaSuccess;
}

}  // extern "C"
