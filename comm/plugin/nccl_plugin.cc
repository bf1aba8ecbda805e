#include <nccl.h>

#include <cstdio>
#include <cstring>

#include "nccl_calls.h"

namespace windrow::comm {
namespace {

static_assert(NcclId::size == NCCL_UNIQUE_ID_BYTES);
static_assert(nccl_in_progress == ncclInProgress);
static_assert(nccl_not_reached == -cudaErrorNotReady);

ncclComm_t of(NcclComm* comm) { return reinterpret_cast<ncclComm_t>(comm); }
cudaStream_t of(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t of(NcclEvent* event) { return reinterpret_cast<cudaEvent_t>(event); }
/// Converts a result of CUDA to an error of NcclCalls, and clears the thread's last CUDA error.
int cuda(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return -static_cast<int>(error);
}

void text(int error, char* text, std::size_t size) {
  if (error >= 0) {
    std::snprintf(text, size, "%s", ncclGetErrorString(static_cast<ncclResult_t>(error)));
  } else {
    const auto code = static_cast<cudaError_t>(-error);
    std::snprintf(text, size, "%s (%s)", cudaGetErrorString(code), cudaGetErrorName(code));
  }
}

int make_id(NcclId* made) {
  ncclUniqueId id;
  const int error = ncclGetUniqueId(&id);
  std::memcpy(made->bytes, id.internal, NcclId::size);
  return error;
}

int group_start() { return ncclGroupStart(); }
int group_end() { return ncclGroupEnd(); }

int init(int size, const NcclId* id, int rank, NcclComm** made) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId unique;
  std::memcpy(unique.internal, id->bytes, NcclId::size);
  return ncclCommInitRankConfig(reinterpret_cast<ncclComm_t*>(made), size, unique, rank, &config);
}
int state(NcclComm* comm, int* error) {
  ncclResult_t found = ncclSuccess;
  const int result = ncclCommGetAsyncError(of(comm), &found);
  *error = found;
  return result;
}
int finalize(NcclComm* comm) { return ncclCommFinalize(of(comm)); }
int destroy(NcclComm* comm) { return ncclCommDestroy(of(comm)); }
int abort(NcclComm* comm) { return ncclCommAbort(of(comm)); }

int begin(const NcclTransfer* t) {
  const ncclDataType_t type = t->type == Elements::float32 ? ncclFloat32 : ncclInt32;
  const ncclRedOp_t how = t->combine == Combine::sum ? ncclSum : t->combine == Combine::mean ? ncclAvg : ncclMax;
  const cudaStream_t stream = of(t->stream);
  switch (t->kind) {
    case CallKind::all_reduce:
      return ncclAllReduce(t->from, t->to, t->count, type, how, of(t->comm), stream);
    case CallKind::reduce:
      return ncclReduce(t->from, t->to, t->count, type, how, t->peer, of(t->comm), stream);
    case CallKind::broadcast:
      return ncclBroadcast(t->from, t->to, t->count, type, t->peer, of(t->comm), stream);
    case CallKind::all_gather:
      return ncclAllGather(t->from, t->to, t->count, type, of(t->comm), stream);
    case CallKind::reduce_scatter:
      return ncclReduceScatter(t->from, t->to, t->count, type, how, of(t->comm), stream);
    case CallKind::send:
      return ncclSend(t->from, t->count, type, t->peer, of(t->comm), stream);
    case CallKind::recv:
      return ncclRecv(t->to, t->count, type, t->peer, of(t->comm), stream);
    default:
      return ncclInvalidArgument;
  }
}

int device(int* device) { return cuda(cudaGetDevice(device)); }
int use(int device) { return cuda(cudaSetDevice(device)); }
int make_stream(void** made) {
  int least = 0, greatest = 0;
  if (const int error = cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest)); error != 0) return error;
  return cuda(cudaStreamCreateWithPriority(reinterpret_cast<cudaStream_t*>(made), cudaStreamNonBlocking, greatest));
}
int drain(void* stream) { return cuda(cudaStreamSynchronize(of(stream))); }
int end_stream(void* stream) { return cuda(cudaStreamDestroy(of(stream))); }
int make_event(NcclEvent** made) {
  return cuda(cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(made), cudaEventDisableTiming));
}
int end_event(NcclEvent* event) { return cuda(cudaEventDestroy(of(event))); }
int record(NcclEvent* event, void* stream) { return cuda(cudaEventRecord(of(event), of(stream))); }
int wait(void* stream, NcclEvent* event) { return cuda(cudaStreamWaitEvent(of(stream), of(event), 0)); }
int query(NcclEvent* event) { return cuda(cudaEventQuery(of(event))); }
int allocate(std::size_t bytes, void** made) { return cuda(cudaMalloc(made, bytes)); }
int free(void* start) { return cuda(cudaFree(start)); }
int copy(void* stream, void* to, std::size_t to_stride, const void* from, std::size_t from_stride, std::size_t width,
         std::size_t rows) {
  return cuda(cudaMemcpy2DAsync(to, to_stride, from, from_stride, width, rows, cudaMemcpyDefault, of(stream)));
}

const NcclCalls calls = {NcclCalls::current_version,
                         text,
                         make_id,
                         group_start,
                         group_end,
                         init,
                         state,
                         finalize,
                         destroy,
                         abort,
                         begin,
                         device,
                         use,
                         make_stream,
                         drain,
                         end_stream,
                         make_event,
                         end_event,
                         record,
                         wait,
                         query,
                         allocate,
                         free,
                         copy};

}  // namespace

const NcclCalls* windrow_nccl_calls() { return &calls; }

}  // namespace windrow::comm
