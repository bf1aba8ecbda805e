// The docstrings of the operators. n is the number of rows of a tensor or, for expressions, of vertices or samples.
#include <algorithm>
#include <array>
#include <string_view>

#include "ops/operators.h"

namespace windrow::python {
namespace {

struct Doc {
  std::string_view name;
  const char* text;
};

constexpr Doc docs[] = {
    // Of one value.
    {"tanh", "The hyperbolic tangent of each element."},
    {"sigmoid", "1 / (1 + exp(-x)) of each element."},
    {"relu", "max(x, 0) of each element; the gradient at 0 is 0."},
    {"exp", "The exponential of each element."},
    {"log", "The natural logarithm of each element; -inf at 0, NaN below 0."},
    {"square", "x * x of each element."},
    {"sqrt", "The square root of each element; NaN below 0."},
    {"abs", "The absolute value of each element; the gradient at 0 is 0."},
    {"softplus", "log(1 + exp(x)) of each element."},
    {"log_sigmoid", "log(sigmoid(x)) of each element; finite for every finite x."},
    {"gelu", "GELU by the approximation with tanh, as PyTorch's gelu(x, approximate='tanh')."},
    {"silu", "x * sigmoid(x) of each element, also called swish."},
    {"stop_gradient", "x, as a constant: x gets no gradient."},
    {"row_sum", "The sum of each row: n x w -> n x 1."},
    {"column_sum", "The sum over the rows: n x w -> 1 x w. For parameters and tensors; does not sum over vertices."},
    {"row_max", "The maximum of each row: n x w -> n x 1; NaN if the row contains NaN."},
    {"log_sum_exp", "log(sum of exp(x)) of each row: n x w -> n x 1; finite for finite x."},
    {"softmax", "The softmax of each row."},
    {"log_softmax", "log(softmax(x)) of each row."},
    // Of two.
    {"matmul", "The matrix product: n x k, k x m -> n x m. Also written x @ y."},
    {"matmul_nt", "x times y transposed: n x m, k x m -> n x k."},
    {"log_matmul",
     "log(sum over i of exp(x[i] + y[i][j])): n x k, k x m -> n x m, a step of the forward algorithm. Use -1e30 for a "
     "forbidden transition."},
    {"max_matmul", "The maximum over i of x[i] + y[i][j]: n x k, k x m -> n x m, a step of Viterbi's algorithm."},
    {"argmax_matmul", "The first i with the maximum of x[i] + y[i][j], as a float without gradient."},
    {"row_dot", "The dot product of each pair of rows: n x w, n x w -> n x 1."},
    {"mul_columns", "Each row of x times its element of y: n x w, n x 1 -> n x w."},
    {"squared_distance", "The sum of (x - y)^2 over each row: n x w, n x w -> n x 1."},
    {"add_channel_bias", "Adds y[k] to all p columns of channel k: n x (c * p), 1 x c -> n x (c * p)."},
    {"maximum", "The larger of two elements, or NaN; if they are equal, x gets the gradient. Broadcasts."},
    {"minimum", "The smaller of two elements, or NaN; if they are equal, x gets the gradient. Broadcasts."},
    {"log_add_exp", "log(exp(x) + exp(y)), finite for finite elements. Broadcasts."},
    {"binary_cross_entropy",
     "The cross entropy of each logit x and target y within [0, 1]. A loss is its row_sum or mean. Broadcasts."},
    // With indices.
    {"pick", "Element index[r] of each row r, 0 where it is -1: n x w; n x 1 -> n x 1."},
    {"softmax_cross_entropy",
     "-log(softmax(x)[index]) of each row, 0 where the label is -1: n x w; n x 1 -> n x 1. Labels of tensors may be a "
     "row of n, such as windrow.tensor([3, 1, 2])."},
    // With numbers.
    {"scale_shift", "factor * x + shift of each element."},
    {"elu", "x where x > 0, otherwise alpha * (exp(x) - 1)."},
    {"leaky_relu", "x where x >= 0, otherwise slope * x."},
    {"clamp", "x, but at least low and at most high; the gradient at both ends is 1."},
    {"pow", "x to a power other than 0; NaN for x below 0 unless the power is whole. Also written x ** power."},
    {"reverse_gradient", "x, whose gradient is -factor times that of the result."},
    {"matmul_each",
     "Each row of x and of y contains a row-major matrix, and the result's row is their product: n x (rows * k), n x "
     "(k * m) -> n x (rows * m)."},
    {"matmul_each_nt", "As matmul_each, with the matrices in y transposed."},
    {"slice", "Columns [begin, end) of x, with gradient: n x w -> n x (end - begin)."},
    {"top_k",
     "The k largest elements of each row, largest first; of equal ones the first comes first. With columns, each row "
     "of x contains rows of that many columns, and the result has the k largest elements of each column. With "
     "by_place, the elements keep their original order."},
    {"arg_top_k", "The numbers of the k largest columns, as floats without gradient: n x w -> n x k."},
    {"argmax",
     "The number of the first column with the maximum, as a float without gradient: n x w -> n x 1. For "
     "tensors, argmax(x).astype('int32') gives indices."},
    {"sample",
     "A column drawn from softmax(x), as a float without gradient: n x w; n x 3 -> n x 1. The draw depends only on "
     "the seed, the site and the three keys of the row."},
    {"layer_norm", "(x - mean) / sqrt(variance + epsilon) of each row, without gain and bias."},
    {"rms_norm", "x / sqrt(mean of x^2 + epsilon) of each row, without gain."},
    {"dropout",
     "Drops elements with the probability rate, and divides the others by 1 - rate. For expressions in training: with "
     "rows, a row is dropped as a whole; with by_sample, all vertices of a sample share a mask. With keys, n x 3: the "
     "mask depends only on the keys, the seed and the site, and is applied in inference, too."},
    {"smoothed_cross_entropy",
     "softmax_cross_entropy with smoothed labels: the share epsilon of the target is divided equally among all "
     "classes."},
    {"hinge",
     "max(0, margin + largest other score - score of the label), 0 where the label is -1: n x w; n x 1 -> "
     "n x 1."},
    {"conv2d",
     "The cross-correlation of each image with each filter, a row of filters: n x image, f x window -> n x "
     "(f * positions). See Window2d."},
    {"max_pool2d", "The maximum within each position of the window: n x image -> n x (channels * positions)."},
    // Of any number of values, and of tensors only.
    {"concat", "The columns of all values side by side: n x w1, n x w2, ... -> n x (w1 + w2 + ...)."},
    {"transpose", "k x m -> m x k."},
    {"matmul_tn", "x transposed times y, a sum over all rows: n x k, n x m -> k x m."},
    {"embedding", "Row index[r] of the table x: m x w; n x 1, or a row of n -> n x w."},
    {"embedding_bag",
     "The sum of the rows of the table x with the numbers in a row of index, -1 for none: m x w; n x b -> "
     "n x w."},
    {"gather_rows", "Row index[r] of x: m x w; n x 1 -> n x w."},
    {"scatter_rows", "Adds row r of x to row index[r] of a tensor of zeros: n x w; n x 1 -> rows x w."},
    {"segment_sum", "The sum of rows [index[r][0], index[r][1]) of x: m x w; n x 2 -> n x w; zeros for no rows."},
    {"segment_mean", "The mean of rows [index[r][0], index[r][1]) of x: m x w; n x 2 -> n x w; zeros for no rows."},
    {"segment_max", "The maximum of rows [index[r][0], index[r][1]) of x: m x w; n x 2 -> n x w; zeros for no rows."},
    {"broadcast_to", "Copies of one row, one column or one element: rows x width."},
    {"sgd", "A step of gradient descent in place: parameter -= rate * (gradient + decay * parameter)."},
};

}  // namespace

const char* doc_of(std::string_view name) {
  const auto* const found = std::ranges::find(docs, name, &Doc::name);
  return found == std::end(docs) ? "" : found->text;
}

}  // namespace windrow::python
