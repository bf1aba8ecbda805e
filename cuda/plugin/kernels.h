// The kernels of all operators: a function that issues each of them, and the table.
#pragma once

#include <cstddef>

#include "plugin.h"

namespace windrow::cuda {

/// Null: there is none.
const KernelEntry* find_kernel(const char* op);

// In linear.cu.
/// Makes the handle of cuBLAS if there is none.
int prepare_products(const Queue& queue);
int multiply(const Queue& queue, const Products& products);

/// All kernels but those of elementwise.cu, whose list is generated: K(name), or W(name, workspace).
// clang-format off
#define WINDROW_KERNELS(K, W) \
  /* linear.cu */ \
    K(matmul) K(matmul_nt) K(matmul_tn) K(transpose) K(add_bias) W(column_sum, column_sum_workspace) \
    K(spread_rows) K(spread_columns) K(mul_row) W(column_dot, column_sum_workspace) K(mul_columns) \
    K(matmul_each) K(matmul_each_nt) K(matmul_each_tn) \
  /* semiring.cu */ \
    K(log_matmul) K(log_matmul_gradient) K(log_matmul_weight_gradient) K(max_matmul) K(argmax_matmul) \
    K(max_matmul_gradient) K(max_matmul_weight_gradient) \
  /* choices.cu */ \
    K(top_k) K(top_k_gradient) K(arg_top_k) K(sample) \
  /* rowwise.cu */ \
    K(row_sum) K(row_dot) K(squared_distance) K(squared_distance_gradient) K(row_max) K(row_max_gradient) \
    K(layer_norm) K(layer_norm_gradient) K(rms_norm) K(rms_norm_gradient) K(softmax) K(softmax_gradient) \
    K(log_softmax) K(log_softmax_gradient) K(log_sum_exp) K(log_sum_exp_gradient) \
  /* rows.cu */ \
    K(gather_rows) K(gather_where) K(embedding_bag) K(concat) K(slice) K(place) K(pick) K(pick_gradient) \
  /* scatter.cu */ \
    W(scatter_rows, scatter_workspace) W(scatter_bags, scatter_workspace) K(segment_spread) \
    K(segment_spread_mean) K(segment_max_gradient) \
  /* segments.cu */ \
    K(segment_sum) K(segment_mean) K(segment_max) K(segment_argmax) K(gather_sum) K(gather_weighted_sum) \
    K(gather_dot) \
  /* sgd_rows.cu */ \
    W(sgd_rows, parts_workspace) W(sum_parts, parts_workspace) \
  /* training_step.cu */ \
    K(sgd_step) K(momentum_step) K(adagrad_step) K(rmsprop_step) K(adam_step) K(sgd_step_rows) \
    K(momentum_step_rows) K(adagrad_step_rows) K(rmsprop_step_rows) K(adam_step_rows) K(count_step_rows) \
    W(squared_norm, squared_norm_workspace) W(limit_norm, limit_norm_workspace) \
  /* losses.cu */ \
    K(softmax_cross_entropy) K(softmax_cross_entropy_gradient) K(dropout) K(smoothed_cross_entropy) \
    K(smoothed_cross_entropy_gradient) K(hinge) K(hinge_gradient) \
  /* images.cu */ \
    K(conv2d) K(conv2d_data_gradient) K(conv2d_filter_gradient) K(max_pool2d) K(max_pool2d_gradient) \
    K(add_channel_bias) K(add_channel_bias_gradient)
// clang-format on

/// The functions of the entries, named like the operators.
namespace kernel {

using Run = int(const KernelCall<float>& call, const Queue& queue);
using Workspace = std::size_t(const KernelCall<float>& call);

#define WINDROW_DECLARE(op, ...) Run op;
WINDROW_KERNELS(WINDROW_DECLARE, WINDROW_DECLARE)
#undef WINDROW_DECLARE
Workspace column_sum_workspace, limit_norm_workspace, parts_workspace, scatter_workspace, squared_norm_workspace;

}  // namespace kernel
}  // namespace windrow::cuda
