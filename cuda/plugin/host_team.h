// A team on the host, which tests use instead of a device's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "team.h"

namespace windrow::cuda {

/// Runs teams on the host. Implemented by tests/cuda.
class TeamRunner {
 public:
  /// Returns when all threads of the team have called it.
  WINDROW_ON_DEVICE virtual void sync() = 0;
  /// Notes that a thread accesses an element of shared memory, at an offset in bytes; thread -1 means all threads.
  WINDROW_ON_DEVICE virtual void touch(std::size_t offset, int thread, bool writes) = 0;

 protected:
  ~TeamRunner() = default;
};

/// All threads of a team, or one of them.
class HostTeam {
 public:
  struct Shape {
    int index, count, threads;
    std::byte* shared;
    /// At least most_threads elements, for reductions.
    float* reduced;
  };
  /// For threads [begin, end) of the team.
  WINDROW_ON_DEVICE HostTeam(const Shape& shape, int begin, int end, TeamRunner& runner)
      : shape_(shape), begin_(begin), end_(end), runner_(runner) {}

  WINDROW_ON_DEVICE int index() const { return shape_.index; }
  WINDROW_ON_DEVICE int count() const { return shape_.count; }
  WINDROW_ON_DEVICE int threads() const { return shape_.threads; }

  template <class Function>
  WINDROW_ON_DEVICE void each(Function function) {
    for (thread_ = begin_; thread_ < end_; ++thread_) function(int{thread_});
    thread_ = everyone;
  }
  WINDROW_ON_DEVICE void sync() { runner_.sync(); }

  template <class T>
  struct Values {
    std::array<T, most_threads> all{};
    WINDROW_ON_DEVICE T& operator[](int thread) { return all[static_cast<std::size_t>(thread)]; }
    WINDROW_ON_DEVICE const T& operator[](int thread) const { return all[static_cast<std::size_t>(thread)]; }
  };
  template <class T>
  WINDROW_ON_DEVICE Values<T> values() const {
    return {};
  }

  /// An element of shared memory.
  template <class T>
  class Element {
   public:
    WINDROW_ON_DEVICE Element(HostTeam& team, std::size_t offset) : team_(team), offset_(offset) {}
    WINDROW_ON_DEVICE operator T() const {
      team_.runner_.touch(offset_, team_.thread_, false);
      return *reinterpret_cast<const T*>(team_.shape_.shared + offset_);
    }
    WINDROW_ON_DEVICE Element& operator=(T value) {
      team_.runner_.touch(offset_, team_.thread_, true);
      *reinterpret_cast<T*>(team_.shape_.shared + offset_) = value;
      return *this;
    }
    WINDROW_ON_DEVICE Element& operator=(const Element& other) { return *this = T(other); }
    WINDROW_ON_DEVICE Element& operator+=(T value) { return *this = T(*this) + value; }

   private:
    HostTeam& team_;
    std::size_t offset_;
  };
  template <class T>
  struct Shared {
    HostTeam& team;
    WINDROW_ON_DEVICE Element<T> operator[](Index i) const { return {team, static_cast<std::size_t>(i) * sizeof(T)}; }
  };
  template <class T>
  WINDROW_ON_DEVICE Shared<T> shared(int) {
    return {*this};
  }

  WINDROW_ON_DEVICE float sum(const Values<float>& values) {
    return reduce(values, [](float a, float b) { return a + b; });
  }
  WINDROW_ON_DEVICE float max(const Values<float>& values) {
    return reduce(values, [](float a, float b) { return a != a || a > b ? a : b; });
  }

 private:
  static constexpr int everyone = -1;

  /// In the order of DeviceTeam::reduce().
  template <class Join>
  WINDROW_ON_DEVICE float reduce(const Values<float>& values, Join join) {
    runner_.sync();
    for (int t = begin_; t < end_; ++t) shape_.reduced[t] = values[t];
    runner_.sync();
    float joined = 0;
    for (int warp = 0; warp < threads(); warp += 32) {
      std::array<float, 32> lanes, next;
      for (std::size_t i = 0; i < 32; ++i) lanes[i] = shape_.reduced[static_cast<std::size_t>(warp) + i];
      for (std::size_t distance = 16; distance > 0; distance /= 2, lanes = next) {
        for (std::size_t i = 0; i < 32; ++i) next[i] = join(lanes[i], lanes[i ^ distance]);
      }
      joined = warp == 0 ? lanes[0] : join(joined, lanes[0]);
    }
    return joined;
  }

  const Shape shape_;
  const int begin_, end_;
  int thread_ = everyone;  // the running thread; `everyone` outside each()
  TeamRunner& runner_;
};

/// How the host runs a kernel.
struct HostKernel {
  const char* name;
  std::size_t size;  ///< of the kernel's struct, in bytes
  void (*run)(const void* kernel, HostTeam& team);
  void (*accesses)(const void* kernel, Accesses& to);
};

}  // namespace windrow::cuda

/// Called before a kernel is launched, if it is defined (the runtime for tests defines it). `function` is the address
/// that identifies the kernel to the CUDA runtime.
extern "C" __attribute__((weak)) void windrow_host_kernel(const void* function,
                                                          const windrow::cuda::HostKernel* kernel);
