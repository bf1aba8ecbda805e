// A plug-in for CUDA devices that compute nothing: kernels and products do no work, and all memory is zero. With it,
// `windrow-perf gpu` measures what a minibatch costs the host. A call that issues work takes as long as a driver may.
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "plugin.h"

namespace windrow::cuda {
namespace {

/// Its address is the handle of every queue, event, module and kernel.
int anything;
template <class T>
int make(T** made) {
  *made = reinterpret_cast<T*>(&anything);
  return success;
}
template <auto value>
int give(auto* to) {
  *to = value;
  return success;
}

/// A call that issues work. An empty kernel takes a driver 1.5 us and more ("MegaQwen" on an RTX 3090).
int issue() {
  constexpr auto time = std::chrono::microseconds(2);
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
  return success;
}

int allocate(void** start, std::size_t bytes) {
  *start = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (*start == nullptr) return out_of_memory;
  std::memset(*start, 0, bytes);
  return success;
}
int release(void* start) {
  std::free(start);
  return success;
}

/// Writes zeros, because reused host memory has other contents.
int copy(Queue*, void* to, const void*, const CopyShape* shape) {
  for (std::size_t r = 0; r < shape->rows; ++r) {
    std::memset(static_cast<std::byte*>(to) + r * shape->to_stride, 0, shape->width);
  }
  return issue();
}

int facts(int, DeviceFacts* facts) {
  *facts = {.name = "no work",
            .major = 9,
            .minor = 0,
            .memory = std::size_t{64} << 30,
            .teams_together = 132,
            .shared_bytes = 227 << 10};
  return success;
}

/// One kernel for all operators. It needs no workspace, since nothing uses it.
const KernelEntry* kernel(const char* op) {
  static std::mutex mutex;
  static std::map<std::string, KernelEntry> made;
  std::lock_guard lock(mutex);
  const auto [found, is_new] = made.try_emplace(op);
  if (is_new) {
    found->second.op = found->first.c_str();
    found->second.run = [](const KernelCall<float>&, const Queue&) -> int { return issue(); };
    if (found->first.ends_with("_step")) {
      found->second.run_each = [](const KernelCall<float>*, std::size_t, const Queue&) -> int { return issue(); };
    } else if (found->first == "column_sum") {  // two launches, as in the plug-in
      found->second.run = [](const KernelCall<float>&, const Queue&) -> int { return issue() + issue(); };
      found->second.run_each = [](const KernelCall<float>*, std::size_t, const Queue&) -> int {
        return issue() + issue();
      };
    }
  }
  return &found->second;
}

constexpr Plugin plugin = {
    .version = Plugin::current_version,
    .text = [](int) { return "no error is known"; },
    .versions = [](int* driver, int* runtime) { return give<13000>(driver) + give<13000>(runtime); },
    .count_devices = give<1>,
    .facts = facts,
    .free_memory = give<0>,
    .device = give<0>,
    .set_device = [](int) -> int { return success; },
    .restore_device = [](int) -> int { return success; },
    .begin_range = [](const char*) {},
    .end_range = [] {},
    .take_error = []() -> int { return success; },
    .make_queue = [](int, const QueueOptions*, Queue** made) { return make(made); },
    .stream = [](const Queue*) -> void* { return nullptr; },
    .drain = [](Queue*) -> int { return success; },
    .end_queue = [](Queue*) -> int { return success; },
    .wait_for_event = [](Queue*, Event*) -> int { return success; },
    .make_event = make<Event>,
    .end_event = [](Event*) -> int { return success; },
    .record = [](Event*, Queue*) -> int { return success; },
    .query = [](Event*) -> int { return success; },
    .make_clock = make<Event>,
    .elapsed = [](Event*, Event*, float* milliseconds) { return give<0>(milliseconds); },
    .record_now = [](Event*) -> int { return success; },
    .allocate = allocate,
    .free = release,
    .allocate_pinned = allocate,
    .free_pinned = release,
    .copy = copy,
    .clear = [](Queue*, void*, std::size_t) -> int { return issue(); },
    .can_compile = [] { return true; },
    .compiler =
        [](int, CompilerFacts* facts) {
          *facts = {"no compiler", ""};
        },
    .compile = [](const char*, int, Compiled* made) { return give<Compiled{}>(made); },
    .free_compiled = [](Compiled*) {},
    .load = [](const char*, Module** made) { return make(made); },
    .end_module = [](Module*) -> int { return success; },
    .function = [](Module*, const char*, Function** found) { return make(found); },
    .launch = [](Queue*, Function*, Index, void*) -> int { return issue(); },
    .allow_shared = [](Function*, std::size_t, int) -> int { return success; },
    .launch_together = [](Queue*, Function*, int, std::size_t, void*) -> int { return issue(); },
    .multiply = [](Queue*, const Products*) -> int { return issue(); },
    .prepare_capture = [](Queue*) -> int { return success; },
    .begin_capture = [](Queue*) -> int { return success; },
    .end_capture = [](Queue*, Graph** made, std::size_t* calls) -> int {
      *calls = 1;
      return make(made);
    },
    .free_graph = [](Graph*) {},
    .launch_graph = [](Queue*, const Graph*, GraphExec** exec) -> int { return make(exec) + issue(); },
    .end_exec = [](GraphExec*) {},
    .kernel = kernel,
};

}  // namespace
}  // namespace windrow::cuda

const windrow::cuda::Plugin* windrow_cuda_plugin() { return &windrow::cuda::plugin; }
