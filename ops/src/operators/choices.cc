// The largest elements of rows, and draws from distributions: shapes and gradients.
#include <string>

#include "operators/rules.h"
#include "windrow/ops/internal/dropout.h"
#include "windrow/ops/operators.h"

namespace windrow::op {
namespace {

Type infer_top_k(const Operator& op, const Signature& s) {
  const auto [k, columns] = std::pair(s.attributes.sizes[0], s.attributes.sizes[1]);
  if (s.in[0].width % columns != 0 || s.in[0].width / columns < k) {
    throw shape_error(op, s,
                      "a width that is a multiple of " + std::to_string(columns) + ", and " +
                          std::to_string(k * columns) + " or more");
  }
  return {s.in[0].rows, k * columns};
}
Type infer_sample(const Operator& op, const Signature& s) {
  require_index(3, op, s);
  require(0 < s.in[0].width && s.in[0].width <= dropout_width_limit, op, s, "a width of 1 to 262144");
  return {s.in[0].rows, 1};
}

}  // namespace

constinit const Operator top_k = rowwise({.name = "top_k",
                                          .infer = infer_top_k,
                                          .gradients = term<top_k_gradient, x, gradient>,
                                          .zero = 0b1,
                                          .attributes = "largest"});
constinit const Operator top_k_gradient = rowwise(
    {.name = "top_k_gradient", .inputs = 2, .infer = like_operand<infer_top_k>, .zero = 0b10, .attributes = "largest"});
constinit const Operator arg_top_k =
    rowwise({.name = "arg_top_k", .infer = infer_top_k, .gradients = terms<no_gradient>, .attributes = "largest"});
constinit const Operator sample = rowwise({.name = "sample",
                                           .index_inputs = 1,
                                           .infer = infer_sample,
                                           .gradients = terms<no_gradient>,
                                           .attributes = "drawn_by"});

Attributes largest(Index k, Index columns, Order order) {
  if (k < 1 || columns < 1 || k > INT32_MAX || columns > INT32_MAX) {
    throw MisuseError("top_k: the " + std::to_string(k) + " largest of " + std::to_string(columns) +
                      " columns; expected 1 to 2147483647");
  }
  return {.made_by = "largest", .sizes = {k, columns, order == Order::by_place ? 1 : 0}};
}
Attributes drawn_by(std::uint64_t seed, std::uint32_t site) {
  if (site >> 16 != 0) throw MisuseError("sample: site " + std::to_string(site) + "; expected 0 to 65535");
  return {.made_by = "drawn_by", .sizes = {static_cast<Index>(seed), site}};
}

}  // namespace windrow::op
