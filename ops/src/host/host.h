// Functions that the host kernels share, and the families of kernels.
#pragma once

#include <algorithm>

#include "checks.h"
#include "windrow/ops/kernel.h"

namespace windrow {

using HostCall = KernelCall<float>;

void add_host_choices(KernelTable<float>& table);
void add_host_elementwise(KernelTable<float>& table);
void add_host_images(KernelTable<float>& table);
void add_host_linear(KernelTable<float>& table);
void add_host_norm(KernelTable<float>& table);
void add_host_rows(KernelTable<float>& table);
void add_host_rowwise(KernelTable<float>& table);
void add_host_semirings(KernelTable<float>& table);
void add_host_softmax(KernelTable<float>& table);
void add_host_training_steps(KernelTable<float>& table);

inline void zero_unless_adding(const HostCall& call) {
  if (call.write == Write::add) return;
  for (Index r = 0; r < call.out.rows; ++r) std::fill_n(call.out.row(r), call.out.width, 0.0f);
}

/// to += factor * from, n elements, by SIMD.
void add_scaled(float* to, const float* from, Index n, float factor);

/// to -= rate * (gradient + decay * to), n elements, by SIMD: what op::sgd does.
void descend(float* to, const float* gradient, Index n, float rate, float decay);

/// to = max(to, from), or NaN if one is NaN. The ranges may overlap if `from` begins after `to`.
void take_larger(float* to, const float* from, Index n);

/// The sum of n elements.
float sum_elements(const float* x, Index n);

}  // namespace windrow
