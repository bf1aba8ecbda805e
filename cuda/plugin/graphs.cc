// Graphs, made by stream capture.
#include "graphs.h"

#include "kernels.h"
#include "queue.h"

namespace windrow::cuda {
namespace {

/// What cuBLAS recommends for the newest devices.
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

cudaGraph_t native(const Graph* graph) { return reinterpret_cast<cudaGraph_t>(const_cast<Graph*>(graph)); }
cudaGraphExec_t native(GraphExec* exec) { return reinterpret_cast<cudaGraphExec_t>(exec); }

}  // namespace

/// Without a workspace of the caller, cuBLAS allocates one in the graph, and such graphs cannot be updated.
int prepare_capture(Queue* queue) {
  if (const int error = prepare_products(*queue); error != success) return error;
  if (const cudaError_t error = cudaMalloc(&queue->workspace, workspace_bytes); error != cudaSuccess) return error;
  return of_blas(cublasSetWorkspace(queue->blas, queue->workspace, workspace_bytes));
}

/// Relaxed: the thread may allocate memory meanwhile.
int begin_capture(Queue* queue) { return cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeRelaxed); }

int end_capture(Queue* queue, Graph** made, std::size_t* calls) {
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

void end_exec(GraphExec* exec) { cudaGraphExecDestroy(native(exec)); }

}  // namespace windrow::cuda
