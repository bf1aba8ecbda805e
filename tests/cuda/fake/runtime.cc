// The fake runtime's controls, and the functions about versions, devices and errors.
#include "runtime.h"

#include <cuda.h>

namespace windrow::fake {
namespace {

thread_local int thread_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

int& current_device() { return thread_device; }

Known& known() {
  static Known* const made = new Known;
  return *made;
}

cudaError_t returns(int error) {
  const auto code = static_cast<cudaError_t>(error);
  if (code != cudaSuccess) last_error = code;
  return code;
}

void wait_for_device(int device, std::unique_lock<std::mutex>& lock) {
  ++world().counters.synchronisations;
  std::vector<TaskPtr> lasts;
  for (const Stream* stream : world().streams) {
    if (stream->device() == device) lasts.push_back(stream->last());
  }
  for (const TaskPtr& last : lasts) wait_for(last, lock);
}

Stream& stream_of(void* handle) {
  if (handle != nullptr) return *static_cast<Stream*>(handle);
  auto& made = known().default_streams[thread_device];
  if (made == nullptr) made = std::make_unique<Stream>(thread_device, true);
  return *made;
}

TaskPtr issue(Stream& stream, std::string name, const std::vector<cuda::Access>& accesses, std::function<void()> work,
              std::vector<TaskPtr> after, const void* library) {
  if (stream.capture) {
    stream.capture->push_back({std::move(name), accesses, std::move(work), library});
    return nullptr;
  }
  World& w = world();
  const auto& defaults = known().default_streams;
  const auto found = defaults.find(stream.device());
  if (stream.blocking() && found != defaults.end()) {
    for (Stream* other : w.streams) {
      const bool comes_first = found->second.get() == &stream ? other->blocking() : other == found->second.get();
      if (other != &stream && other->device() == stream.device() && comes_first && other->last() != nullptr) {
        after.push_back(other->last());
      }
    }
  }
  const TaskPtr task = stream.issue(std::move(name), std::move(work), std::move(after));
  task->library = library;
  w.checker.check(task, accesses);
  return task;
}

bool in_use() {
  std::lock_guard lock(world().mutex);
  return world().streams.size() > known().default_streams.size();
}

void reset(const Options& options) {
  World& w = world();
  std::unique_lock lock(w.mutex);
  for (auto& [device, stream] : known().default_streams) stream->end(lock);
  known().default_streams.clear();
  // A lane that has ended may be in use by the thread of its device for a moment.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!w.streams.empty() && std::chrono::steady_clock::now() < until) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  if (!w.streams.empty()) throw std::logic_error("fake CUDA: reset while streams exist");
  w.options = options;
  w.counters = {};
  w.reports.clear();
  w.injected = {};
  w.held = false;
  w.held_at.clear();
  w.fail_next_work.assign(static_cast<std::size_t>(options.devices), false);
  w.contexts.assign(static_cast<std::size_t>(options.devices), false);
  w.lost.assign(static_cast<std::size_t>(options.devices), 0);
  w.checker = {};
  w.streams_made = 0;
  w.memories.clear();
  for (int device = 0; device < options.devices; ++device) {
    w.memories.push_back(make_memory(device, options.memory));
  }
}

void fail(std::uint64_t call, int error, bool lasts) {
  std::lock_guard lock(world().mutex);
  world().injected = {call, error, lasts};
}
void around_own_allocations(void (*begin)(), void (*end)()) {
  std::lock_guard lock(world().mutex);
  world().begin_allocating = begin;
  world().end_allocating = end;
}
void fail_next_work(int device) {
  std::lock_guard lock(world().mutex);
  world().fail_next_work[static_cast<std::size_t>(device)] = true;
}
bool has_context(int device) {
  std::lock_guard lock(world().mutex);
  return world().contexts[static_cast<std::size_t>(device)];
}
void set_order(Order order, unsigned seed) {
  std::lock_guard lock(world().mutex);
  world().options.order = order;
  world().options.seed = seed;
}
void hold(bool held) {
  std::lock_guard lock(world().mutex);
  world().held = held;
  wake_all();
}
void hold_at(const std::string& name) {
  std::lock_guard lock(world().mutex);
  world().held_at = name;
  wake_all();
}
Counters counters() {
  std::lock_guard lock(world().mutex);
  return world().counters;
}
std::vector<std::string> reports() {
  std::lock_guard lock(world().mutex);
  return world().reports;
}
void forget_reports() {
  std::lock_guard lock(world().mutex);
  world().reports.clear();
}

namespace {
/// Tests that do not call it begin with a device, too; programs, with as many as the environment says.
[[maybe_unused]] const bool begun = [] {
  const char* const devices = std::getenv("WINDROW_FAKE_DEVICES");
  reset({.devices = devices == nullptr ? 1 : std::atoi(devices)});
  return true;
}();
}  // namespace

}  // namespace windrow::fake

using namespace windrow::fake;

/// Of the errors that tests read.
struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};
static const ErrorText& text_of(cudaError_t error) {
  static const ErrorText all[] = {
      {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
      {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
      {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient"},
      {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
      {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
      {cudaErrorUnknown, "cudaErrorUnknown", "an error"}};
  const auto found = std::ranges::find(all, error, &ErrorText::error);
  return found == std::end(all) ? *std::prev(found) : *found;
}

extern "C" {

cudaError_t cudaDriverGetVersion(int* version) {
  *version = world().options.driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  WINDROW_BEGIN_CALL();
  const Options& options = world().options;
  if (options.driver_version < CUDART_VERSION / 1000 * 1000) return returns(cudaErrorInsufficientDriver);
  if (options.devices == 0) return returns(cudaErrorNoDevice);
  *count = options.devices;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  WINDROW_BEGIN_CALL();
  if (device < 0 || device >= world().options.devices) return returns(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "fake CUDA device");
  properties->major = world().options.major;
  properties->multiProcessorCount = world().options.multiprocessors;
  properties->cooperativeLaunch = 1;
  properties->sharedMemPerBlockOptin = world().options.shared_bytes;
  properties->totalGlobalMem = world().options.memory;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  WINDROW_BEGIN_CALL();
  *value = world().options.multiprocessors;  // multiprocessors; others are not asked for
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  WINDROW_BEGIN_CALL();
  world().contexts[static_cast<std::size_t>(thread_device)] = true;
  const TwiceMapped& memory = *world().memories[static_cast<std::size_t>(thread_device)];
  *free = memory.capacity() - memory.taken_bytes();
  *total = world().options.memory;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = thread_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  Call call;
  if (device < 0 || device >= world().options.devices) return returns(cudaErrorInvalidDevice);
  const int before = std::exchange(thread_device, device);
  const int error = call.begin();
  if (error != cudaSuccess && Call::error_of_device() == 0) {  // the call alone has failed
    thread_device = before;
  } else {
    world().contexts[static_cast<std::size_t>(device)] = true;
  }
  return returns(error);
}

/// A function of the driver.
static CUresult primary_context(CUdevice device, unsigned* flags, int* active) {
  std::lock_guard lock(world().mutex);
  *flags = 0;
  *active = world().contexts[static_cast<std::size_t>(device)] ? 1 : 0;
  return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool known = std::strcmp(name, "cuDevicePrimaryCtxGetState") == 0;
  *function = known ? reinterpret_cast<void*>(primary_context) : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  Call call;
  const cudaError_t error =
      Call::error_of_device() != 0 ? static_cast<cudaError_t>(Call::error_of_device()) : last_error;
  last_error = cudaSuccess;
  return error;
}
const char* cudaGetErrorName(cudaError_t error) { return text_of(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return text_of(error).text; }
}  // extern "C"
