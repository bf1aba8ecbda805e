// Teams: how kernels are written. Start here.
//
// A kernel is a struct of its arguments. Teams of threads run its call operator: a team is a block on a device.
//
//   struct RowSum {
//     static constexpr const char* name = "row_sum";
//     Matrix<const float> x;
//     Matrix<float> out;
//
//     template <class Team>
//     WINDROW_ON_DEVICE void operator()(Team& team) const {
//       for (Index r = team.index(); r < x.rows; r += team.count()) {
//         auto sums = team.template values<float>();
//         team.each([&](int thread) {
//           for (Index c = thread; c < x.width; c += team.threads()) sums[thread] += x.row(r)[c];
//         });
//         const float sum = team.sum(sums);
//         team.each([&](int thread) { if (thread == 0) out.row(r)[0] = sum; });
//       }
//     }
//     void accesses(Accesses& to) const { to.all(x, out); }
//   };
//
// Code outside each() computes the same for all threads of a team. Code that differs by thread is inside each(); its
// results are kept in values() or in shared memory. After sync() every thread sees what the others wrote before. So the
// same source runs on the host, as a loop over the threads or with one real thread for each. Tests run kernels this way
// on machines without a GPU (tests/cuda). Device memory may contain offsets, but no addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "windrow/ops/internal/matrix.h"

// Before functions that kernels call.
#ifdef __CUDACC__
#define WINDROW_ON_DEVICE __host__ __device__
#else
#define WINDROW_ON_DEVICE
#endif

namespace windrow::cuda {

/// The most threads of a team.
inline constexpr int most_threads = 256;

/// A range of memory that a kernel accesses: `rows` rows of `width` bytes, `stride` bytes apart.
struct Access {
  const void* start;
  std::size_t rows, width, stride;
  bool writes;
};

/// Collects the accesses of a kernel. Used only by tests.
class Accesses {
 public:
  virtual void add(const Access& access) = 0;

  /// Matrices of const elements are read, and others are written. A part of a kernel has its own accesses().
  template <class... Operand>
  void all(const Operand&... operands) {
    (of(operands), ...);
  }
  template <class T>
  void reads(const Matrix<const T>& matrix) {
    add_matrix(matrix, false);
  }
  template <class T>
  void writes(const Matrix<T>& matrix) {
    add_matrix(Matrix<const T>(matrix), true);
  }
  template <class T>
  void reads(const T* start, Index count) {
    add(Access{start, 1, static_cast<std::size_t>(count) * sizeof(T), 0, false});
  }
  template <class T>
  void writes(T* start, Index count) {
    add(Access{start, 1, static_cast<std::size_t>(count) * sizeof(T), 0, true});
  }

 protected:
  ~Accesses() = default;

 private:
  template <class T>
  void of(const Matrix<const T>& matrix) {
    reads(matrix);
  }
  template <class T>
  void of(const Matrix<T>& matrix) {
    writes(matrix);
  }
  template <class Part>
  void of(const Part& part) {
    part.accesses(*this);
  }
  template <class T>
  void add_matrix(const Matrix<const T>& matrix, bool writes) {
    if (matrix.rows == 0 || matrix.width == 0) return;
    add(Access{matrix.data, static_cast<std::size_t>(matrix.rows), static_cast<std::size_t>(matrix.width) * sizeof(T),
               static_cast<std::size_t>(matrix.stride) * sizeof(T), writes});
  }
};

#ifdef __CUDACC__

/// A team on a device. The number of threads is 32 or a multiple of 64.
class DeviceTeam {
 public:
  __device__ int index() const { return static_cast<int>(blockIdx.x); }
  __device__ int count() const { return static_cast<int>(gridDim.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }

  template <class Function>
  __device__ void each(Function function) const {
    function(static_cast<int>(threadIdx.x));
  }
  __device__ void sync() const { __syncthreads(); }

  /// A value for each thread, initially T().
  template <class T>
  struct Values {
    T own{};
    __device__ T& operator[](int) { return own; }
    __device__ const T& operator[](int) const { return own; }
  };
  template <class T>
  __device__ Values<T> values() const {
    return {};
  }

  /// Shared memory of the team for `count` elements. It starts at the beginning of the memory that the launch
  /// requested.
  template <class T>
  __device__ T* shared(int) const {
    extern __shared__ std::byte windrow_shared_memory[];
    return reinterpret_cast<T*>(windrow_shared_memory);
  }

  /// Reductions over the values of all threads, in an order that the number of threads determines. All threads must
  /// call them, and all get the same bits.
  __device__ float sum(const Values<float>& values) const {
    return reduce(values.own, [](float a, float b) { return a + b; });
  }
  /// NaN if one of the values is NaN.
  __device__ float max(const Values<float>& values) const {
    return reduce(values.own, [](float a, float b) { return a != a || a > b ? a : b; });
  }

 private:
  template <class Join>
  __device__ float reduce(float value, Join join) const {
    for (int distance = 16; distance > 0; distance /= 2) {
      value = join(value, __shfl_xor_sync(0xffffffffu, value, distance));
    }
    const int warps = threads() / 32;
    if (warps == 1) return value;
    __shared__ float of_warps[most_threads / 32];
    __syncthreads();  // the values of an earlier reduction have been read
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    float joined = of_warps[0];
    for (int i = 1; i < warps; ++i) joined = join(joined, of_warps[i]);
    return joined;
  }
};

#endif

/// Calls function(i) once for each i below `count`; the teams divide the calls.
template <class Team, class Function>
WINDROW_ON_DEVICE void for_all(Team& team, Index count, const Function& function) {
  team.each([&](int thread) {
    const Index step = Index{team.count()} * team.threads();
    for (Index i = Index{team.index()} * team.threads() + thread; i < count; i += step) function(i);
  });
}

/// Calls function(row, column) once for each element of a matrix of this shape; the teams divide the calls.
template <class Team, class Function>
WINDROW_ON_DEVICE void for_elements(Team& team, Index rows, Index width, const Function& function) {
  for_all(team, rows * width, [&](Index i) {
    // On a device, a 64-bit division takes many times as long as a 32-bit one.
    const bool small = (i | width) >> 32 == 0;
    const Index row = small ? static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(width) : i / width;
    function(row, i - row * width);
  });
}

}  // namespace windrow::cuda
