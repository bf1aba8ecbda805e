// Kernels of the tests, in kernels.cu. Each is issued on a cudaStream_t.
#pragma once

#include <array>
#include <cstdint>

namespace windrow::testing {

/// Replaces each cell of `out` by a mixture of its position, the number, and all cells of `in`.
struct MixArguments {
  std::uint64_t number = 0;
  int ins = 0, outs = 0;
  std::array<const std::uint64_t*, 4> in = {};
  std::array<std::uint64_t*, 4> out = {};
};
/// What the kernel computes, of the cells that `in` points to.
std::uint64_t mixed(const MixArguments& arguments, int position);
void launch_mix(void* stream, const MixArguments& arguments);

/// Element i of `to`, of 64, becomes i + 1, by way of shared memory. Without the barrier, threads read what others have
/// perhaps not written.
void launch_rotate(void* stream, float* to, bool with_barrier);
/// Reads a float, and writes the sum of it and `number` to another.
void launch_add(void* stream, float* to, const float* from, float number);

}  // namespace windrow::testing
