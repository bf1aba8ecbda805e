// The table of kernels.
#include "kernels.h"

#include <cstring>

namespace windrow::cuda {
namespace kernel {

#define WINDROW_ELEMENTWISE(op, inputs, ...) Run op;
#define WINDROW_UPDATE(op, inputs, ...) Run op;
#include "elementwise_formulas.h"
#undef WINDROW_ELEMENTWISE
#undef WINDROW_UPDATE

}  // namespace kernel

namespace {

constexpr KernelEntry kernels[] = {
#define WINDROW_ELEMENTWISE(op, inputs, ...) {#op, kernel::op, nullptr},
#define WINDROW_UPDATE(op, inputs, ...) {#op, kernel::op, nullptr},
#include "elementwise_formulas.h"
#undef WINDROW_ELEMENTWISE
#undef WINDROW_UPDATE
    {"matmul", kernel::matmul, nullptr},
    {"matmul_nt", kernel::matmul_nt, nullptr},
    {"matmul_tn", kernel::matmul_tn, nullptr},
    {"transpose", kernel::transpose, nullptr},
    {"add_bias", kernel::add_bias, nullptr},
    {"column_sum", kernel::column_sum, kernel::column_sum_workspace},
    {"row_sum", kernel::row_sum, nullptr},
    {"spread_rows", kernel::spread_rows, nullptr},
    {"spread_columns", kernel::spread_columns, nullptr},
    {"mul_row", kernel::mul_row, nullptr},
    {"column_dot", kernel::column_dot, kernel::column_sum_workspace},
    {"row_dot", kernel::row_dot, nullptr},
    {"mul_columns", kernel::mul_columns, nullptr},
    {"matmul_each", kernel::matmul_each, nullptr},
    {"matmul_each_nt", kernel::matmul_each_nt, nullptr},
    {"matmul_each_tn", kernel::matmul_each_tn, nullptr},
    {"gather_rows", kernel::gather_rows, nullptr},
    {"embedding", kernel::gather_rows, nullptr},
    {"log_matmul", kernel::log_matmul, nullptr},
    {"log_matmul_gradient", kernel::log_matmul_gradient, nullptr},
    {"log_matmul_weight_gradient", kernel::log_matmul_weight_gradient, nullptr},
    {"max_matmul", kernel::max_matmul, nullptr},
    {"max_matmul_gradient", kernel::max_matmul_gradient, nullptr},
    {"max_matmul_weight_gradient", kernel::max_matmul_weight_gradient, nullptr},
    {"argmax_matmul", kernel::argmax_matmul, nullptr},
    {"top_k", kernel::top_k, nullptr},
    {"top_k_gradient", kernel::top_k_gradient, nullptr},
    {"arg_top_k", kernel::arg_top_k, nullptr},
    {"sample", kernel::sample, nullptr},
    {"embedding_bag", kernel::embedding_bag, nullptr},
    {"scatter_bags", kernel::scatter_bags, kernel::scatter_workspace},
    {"gather_where", kernel::gather_where, nullptr},
    {"scatter_rows", kernel::scatter_rows, kernel::scatter_workspace},
    {"concat", kernel::concat, nullptr},
    {"slice", kernel::slice, nullptr},
    {"place", kernel::place, nullptr},
    {"pick", kernel::pick, nullptr},
    {"pick_gradient", kernel::pick_gradient, nullptr},
    {"row_max", kernel::row_max, nullptr},
    {"row_max_gradient", kernel::row_max_gradient, nullptr},
    {"conv2d", kernel::conv2d, nullptr},
    {"conv2d_data_gradient", kernel::conv2d_data_gradient, nullptr},
    {"conv2d_filter_gradient", kernel::conv2d_filter_gradient, nullptr},
    {"max_pool2d", kernel::max_pool2d, nullptr},
    {"max_pool2d_gradient", kernel::max_pool2d_gradient, nullptr},
    {"add_channel_bias", kernel::add_channel_bias, nullptr},
    {"add_channel_bias_gradient", kernel::add_channel_bias_gradient, nullptr},
    {"segment_sum", kernel::segment_sum, nullptr},
    {"segment_mean", kernel::segment_mean, nullptr},
    {"segment_max", kernel::segment_max, nullptr},
    {"segment_argmax", kernel::segment_argmax, nullptr},
    {"gather_sum", kernel::gather_sum, nullptr},
    {"gather_weighted_sum", kernel::gather_weighted_sum, nullptr},
    {"gather_dot", kernel::gather_dot, nullptr},
    {"segment_spread", kernel::segment_spread, nullptr},
    {"segment_spread_mean", kernel::segment_spread_mean, nullptr},
    {"segment_max_gradient", kernel::segment_max_gradient, nullptr},
    {"softmax", kernel::softmax, nullptr},
    {"softmax_gradient", kernel::softmax_gradient, nullptr},
    {"log_softmax", kernel::log_softmax, nullptr},
    {"log_softmax_gradient", kernel::log_softmax_gradient, nullptr},
    {"squared_distance", kernel::squared_distance, nullptr},
    {"squared_distance_gradient", kernel::squared_distance_gradient, nullptr},
    {"softmax_cross_entropy", kernel::softmax_cross_entropy, nullptr},
    {"softmax_cross_entropy_gradient", kernel::softmax_cross_entropy_gradient, nullptr},
    {"smoothed_cross_entropy", kernel::smoothed_cross_entropy, nullptr},
    {"smoothed_cross_entropy_gradient", kernel::smoothed_cross_entropy_gradient, nullptr},
    {"hinge", kernel::hinge, nullptr},
    {"hinge_gradient", kernel::hinge_gradient, nullptr},
    {"log_sum_exp", kernel::log_sum_exp, nullptr},
    {"log_sum_exp_gradient", kernel::log_sum_exp_gradient, nullptr},
    {"layer_norm", kernel::layer_norm, nullptr},
    {"layer_norm_gradient", kernel::layer_norm_gradient, nullptr},
    {"rms_norm", kernel::rms_norm, nullptr},
    {"rms_norm_gradient", kernel::rms_norm_gradient, nullptr},
    {"dropout", kernel::dropout, nullptr},
    {"sgd_rows", kernel::sgd_rows, kernel::parts_workspace},
    {"sum_parts", kernel::sum_parts, kernel::parts_workspace},
    {"sgd_step", kernel::sgd_step, nullptr},
    {"momentum_step", kernel::momentum_step, nullptr},
    {"adagrad_step", kernel::adagrad_step, nullptr},
    {"rmsprop_step", kernel::rmsprop_step, nullptr},
    {"adam_step", kernel::adam_step, nullptr},
    {"sgd_step_rows", kernel::sgd_step_rows, nullptr},
    {"momentum_step_rows", kernel::momentum_step_rows, nullptr},
    {"adagrad_step_rows", kernel::adagrad_step_rows, nullptr},
    {"rmsprop_step_rows", kernel::rmsprop_step_rows, nullptr},
    {"adam_step_rows", kernel::adam_step_rows, nullptr},
    {"count_step_rows", kernel::count_step_rows, nullptr},
    {"squared_norm", kernel::squared_norm, kernel::squared_norm_workspace},
    {"limit_norm", kernel::limit_norm, kernel::limit_norm_workspace},
};

}  // namespace

const KernelEntry* find_kernel(const char* op) {
  for (const KernelEntry& entry : kernels) {
    if (std::strcmp(entry.op, op) == 0) return &entry;
  }
  return nullptr;
}

}  // namespace windrow::cuda
