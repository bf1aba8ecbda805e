// The functions of the runtime that launch kernels. The names that begin with __ are what code by nvcc calls; see
// crt/host_runtime.h of the toolkit.

#include <array>
#include <atomic>

#include "runtime.h"
#include "teams.h"

using namespace windrow::fake;
using windrow::cuda::Access;
using windrow::cuda::HostKernel;

extern "C" {

void windrow_host_kernel(const void* function, const HostKernel* kernel) {
  std::lock_guard lock(world().mutex);
  known().kernels[function] = kernel;
}

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*) {}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

struct Configuration {
  dim3 teams, threads;
  std::size_t shared_bytes;
  void* stream;
};
static thread_local Configuration configuration;

unsigned __cudaPushCallConfiguration(dim3 teams, dim3 threads, std::size_t shared_bytes, CUstream_st* stream) {
  configuration = {teams, threads, shared_bytes, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* teams, dim3* threads, std::size_t* shared_bytes, void* stream) {
  *teams = configuration.teams;
  *threads = configuration.threads;
  *shared_bytes = configuration.shared_bytes;
  *static_cast<void**>(stream) = configuration.stream;
  return cudaSuccess;
}

/// For kernels that compiler.cc has made. `together`: the teams run at the same time.
static cudaError_t launch_compiled(const CompiledKernel& kernel, unsigned teams, unsigned threads, bool together,
                                   const void* argument, Stream& stream) {
  std::vector<Access> accesses;
  kernel.accesses(argument, &accesses,
                  [](void* to, const void* start, long long rows, long long width, long long stride, int writes) {
                    static_cast<std::vector<Access>*>(to)->push_back({start, static_cast<std::size_t>(rows),
                                                                      static_cast<std::size_t>(width),
                                                                      static_cast<std::size_t>(stride), writes != 0});
                  });
  std::vector<std::byte> copied(kernel.size);
  std::memcpy(copied.data(), argument, kernel.size);
  relocate(copied, [](const void*) { return true; });  // it has no padding
  const auto run = [kernel, teams, threads, together, device = stream.device(), copied = std::move(copied)] {
    if (together) {
      static std::array<std::atomic<int>, 8> running;  // by device
      if (running.at(static_cast<std::size_t>(device))++ > 0) {
        std::lock_guard lock(world().mutex);
        world().report("kernel '" + kernel.name +
                       "' may share the device with one whose teams also wait for each other");
      }
      std::vector<std::thread> all;
      for (unsigned team = 0; team < teams; ++team) {
        all.emplace_back([&, team] {
          kernel.thread(team, teams, 0, threads);
          kernel.run(copied.data());
        });
      }
      for (std::thread& one : all) one.join();
      --running.at(static_cast<std::size_t>(device));
      return;
    }
    for (unsigned team = 0; team < teams; ++team) {
      for (unsigned thread = 0; thread < threads; ++thread) {
        kernel.thread(team, teams, thread, threads);
        kernel.run(copied.data());
      }
    }
  };
  issue(stream, "kernel " + kernel.name, accesses, world().options.kernels_run ? std::function<void()>(run) : nullptr,
        {}, kernel.library);
  if (stream.capture) stream.capture->back().together = together;
  return cudaSuccess;
}

/// For kernels of libraries; code by nvcc calls __cudaLaunchKernel.
cudaError_t cudaLaunchKernel(const void* function, dim3 teams, dim3 threads, void** arguments, std::size_t,
                             cudaStream_t stream) {
  WINDROW_BEGIN_CALL();
  ++world().counters.launches;
  const auto found = known().compiled.find(function);
  if (found == known().compiled.end()) return returns(cudaErrorInvalidDeviceFunction);
  return returns(launch_compiled(found->second, teams.x, threads.x, false, arguments[0], stream_of(stream)));
}

/// A thread of the host runs all threads of a team; what the code does for devices alone is not run.
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 teams, dim3 threads, void** arguments,
                                        std::size_t shared, cudaStream_t stream) {
  WINDROW_BEGIN_CALL();
  ++world().counters.launches;
  const auto found = known().compiled.find(function);
  if (found == known().compiled.end()) return returns(cudaErrorInvalidDeviceFunction);
  if (teams.x > static_cast<unsigned>(world().options.multiprocessors) || !world().options.cooperative) {
    return returns(cudaErrorCooperativeLaunchTooLarge);
  }
  if (static_cast<int>(shared) > found->second.shared_bytes) return returns(cudaErrorInvalidValue);
  world().counters.most_teams = std::max(world().counters.most_teams, teams.x);
  return returns(launch_compiled(found->second, teams.x, threads.x, true, arguments[0], stream_of(stream)));
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute, int value, int) {
  WINDROW_BEGIN_CALL();
  const auto found = known().compiled.find(static_cast<const void*>(kernel));
  if (found == known().compiled.end()) return returns(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return returns(cudaErrorNotSupported);
  if (value > static_cast<int>(world().options.shared_bytes)) return returns(cudaErrorInvalidValue);
  found->second.shared_bytes = value;
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 teams, dim3 threads, void** arguments,
                               std::size_t shared_bytes, cudaStream_t stream) {
  struct Collected final : windrow::cuda::Accesses {
    void add(const Access& access) override { all.push_back(access); }
    std::vector<Access> all;
  };
  WINDROW_BEGIN_CALL();
  ++world().counters.launches;
  const auto found = known().kernels.find(static_cast<const void*>(kernel));
  if (found == known().kernels.end()) {
    world().report("a kernel is launched that was not announced by windrow_host_kernel()");
    return returns(cudaErrorInvalidDeviceFunction);
  }
  const bool fits = teams.x > 0 && teams.y == 1 && teams.z == 1 && threads.y == 1 && threads.z == 1 &&
                    (threads.x == 32 || (threads.x % 64 == 0 && threads.x > 0 && threads.x <= 1024)) &&
                    shared_bytes <= 48 << 10;
  if (!fits) return returns(cudaErrorInvalidConfiguration);
  const HostKernel& host = *found->second;
  Collected accesses;
  host.accesses(arguments[0], accesses);
  Launch launch{&host, {}, static_cast<int>(teams.x), static_cast<int>(threads.x), shared_bytes};
  const auto* const begin = static_cast<const std::byte*>(arguments[0]);
  launch.arguments.assign(begin, begin + host.size);
  // Only what the kernel says that it accesses: padding of the struct may look like an address.
  relocate(launch.arguments, [&](const void* word) {
    return std::ranges::any_of(accesses.all, [&](const Access& access) { return access.start == word; });
  });
  const Threads kind = world().options.threads;
  const auto run = [launch = std::move(launch), kind] {
    run_teams(launch, kind, [&](const std::string& what) {
      std::lock_guard lock(world().mutex);
      world().report("kernel '" + std::string(launch.kernel->name) + "': " + what);
    });
  };
  issue(stream_of(stream), "kernel " + std::string(host.name), accesses.all,
        world().options.kernels_run ? std::function<void()>(run) : nullptr);
  return cudaSuccess;
}

}  // extern "C"
