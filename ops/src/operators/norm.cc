// Normalisation of rows: shapes and gradients.
#include <cmath>

#include "operators/rules.h"
#include "windrow/ops/internal/number.h"
#include "windrow/ops/operators.h"

namespace windrow::op {

constinit const Operator layer_norm = rowwise({.name = "layer_norm",
                                               .infer = same_shape,
                                               .gradients = term<layer_norm_gradient, x, gradient>,
                                               .zero = 0b1,
                                               .attributes = "with_epsilon"});
constinit const Operator layer_norm_gradient = rowwise(
    {.name = "layer_norm_gradient", .inputs = 2, .infer = same_shape, .zero = 0b10, .attributes = "with_epsilon"});
constinit const Operator rms_norm = rowwise({.name = "rms_norm",
                                             .infer = same_shape,
                                             .gradients = term<rms_norm_gradient, x, gradient>,
                                             .zero = 0b1,
                                             .attributes = "with_epsilon"});
constinit const Operator rms_norm_gradient = rowwise(
    {.name = "rms_norm_gradient", .inputs = 2, .infer = same_shape, .zero = 0b10, .attributes = "with_epsilon"});

Attributes with_epsilon(double epsilon) {
  if (!is_positive_float(epsilon)) {
    throw MisuseError("with_epsilon: " + shortest_text(epsilon) + "; expected a finite float above 0");
  }
  return {.made_by = "with_epsilon", .values = {epsilon, 0}};
}

}  // namespace windrow::op
