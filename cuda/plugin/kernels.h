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

/// The functions of the entries, named like the operators. kernels.cc declares those of elementwise.cu, whose list is
/// generated.
namespace kernel {

using Run = int(const KernelCall<float>& call, const Queue& queue);
using Workspace = std::size_t(const KernelCall<float>& call);

// linear.cu
Run matmul, matmul_nt, matmul_tn, transpose, add_bias, column_sum, spread_rows, spread_columns;
Run mul_row, column_dot, mul_columns, matmul_each, matmul_each_nt, matmul_each_tn;
Workspace column_sum_workspace;
// semiring.cu
Run log_matmul, log_matmul_gradient, log_matmul_weight_gradient, max_matmul, argmax_matmul;
Run max_matmul_gradient, max_matmul_weight_gradient;
// choices.cu
Run top_k, top_k_gradient, arg_top_k, sample;
// rowwise.cu
Run row_sum, row_dot, squared_distance, squared_distance_gradient, row_max, row_max_gradient;
Run layer_norm, layer_norm_gradient, rms_norm, rms_norm_gradient;
Run softmax, softmax_gradient, log_softmax, log_softmax_gradient, log_sum_exp, log_sum_exp_gradient;
// rows.cu
Run gather_rows, gather_where, embedding_bag, concat, slice, place, pick, pick_gradient;
// scatter.cu
Run scatter_rows, scatter_bags, segment_spread, segment_spread_mean, segment_max_gradient;
Workspace scatter_workspace;
// segments.cu
Run segment_sum, segment_mean, segment_max, segment_argmax, gather_sum;
Run gather_weighted_sum, gather_dot;
// sgd_rows.cu
Run sgd_rows, sum_parts;
Workspace parts_workspace;
// training_step.cu
Run sgd_step, momentum_step, adagrad_step, rmsprop_step, adam_step;
Run sgd_step_rows, momentum_step_rows, adagrad_step_rows, rmsprop_step_rows, adam_step_rows;
Run count_step_rows, squared_norm, limit_norm;
Workspace squared_norm_workspace, limit_norm_workspace;
// losses.cu
Run softmax_cross_entropy, softmax_cross_entropy_gradient, dropout;
Run smoothed_cross_entropy, smoothed_cross_entropy_gradient, hinge, hinge_gradient;
// images.cu
Run conv2d, conv2d_data_gradient, conv2d_filter_gradient, max_pool2d, max_pool2d_gradient;
Run add_channel_bias, add_channel_bias_gradient;

}  // namespace kernel
}  // namespace windrow::cuda
