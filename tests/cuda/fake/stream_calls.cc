// The functions of the runtime about streams and events.
#include "runtime.h"

using namespace windrow::fake;

/// The runtime captures events; ours are not meant for that.
static int not_captured(const std::string& what) {
  world().report(what + " on a stream that captures");
  return cudaErrorStreamCaptureUnsupported;
}

extern "C" {

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  WINDROW_BEGIN_CALL();
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  WINDROW_BEGIN_CALL();
  ++world().counters.streams;
  *stream = reinterpret_cast<cudaStream_t>(new Stream(current_device(), (flags & cudaStreamNonBlocking) == 0));
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  Call call;
  auto* const stream = reinterpret_cast<Stream*>(handle);
  stream->end(call.lock);
  delete stream;
  return returns(call.begin());
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  WINDROW_BEGIN_CALL();
  if (stream_of(handle).capture) return returns(cudaErrorStreamCaptureUnsupported);
  ++world().counters.synchronisations;
  wait_for(TaskPtr(stream_of(handle).last()), call.lock);
  return returns(Call::error_of_device());
}

cudaError_t cudaDeviceSynchronize() {
  WINDROW_BEGIN_CALL();
  wait_for_device(current_device(), call.lock);
  return returns(Call::error_of_device());
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  WINDROW_BEGIN_CALL();
  *event = reinterpret_cast<cudaEvent_t>(new EventState);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Call call;
  delete reinterpret_cast<EventState*>(event);
  return returns(call.begin());
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  WINDROW_BEGIN_CALL();
  if (stream_of(handle).capture) return returns(not_captured("an event is recorded"));
  ++world().counters.records;
  *reinterpret_cast<EventState*>(event) = {stream_of(handle).last(), std::chrono::steady_clock::now()};
  return cudaSuccess;
}
/// Returns the error of the event's device, whatever the thread's device is.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Call call;
  if (const int injected = call.begin(); injected != 0 && Call::error_of_device() == 0) return returns(injected);
  ++world().counters.queries;
  auto& known = *reinterpret_cast<EventState*>(event);
  if (known.task == nullptr) return cudaSuccess;
  if (known.task->done) {
    world().checker.host_knows(known.task->clock);
    return returns(world().lost[static_cast<std::size_t>(known.task->device)]);
  }
  if (++known.queries > 3) want(known.task);
  return returns(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  WINDROW_BEGIN_CALL();
  const auto *const first = reinterpret_cast<EventState*>(from), *const last = reinterpret_cast<EventState*>(to);
  for (const EventState* event : {first, last}) {
    if (event->task != nullptr && !event->task->done) return returns(cudaErrorNotReady);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(last->reached_at() - first->reached_at()).count();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  WINDROW_BEGIN_CALL();
  if (stream_of(handle).capture) return returns(not_captured("a wait is issued"));
  ++world().counters.waits;
  const TaskPtr task = reinterpret_cast<EventState*>(event)->task;
  if (task != nullptr) issue(stream_of(handle), "a wait", {}, nullptr, {task});
  return cudaSuccess;
}

}  // extern "C"
