// Normalisation of rows: shapes and gradients.
#include <cmath>

#include "operators/rules.h"
#include "windrow/ops/number.h"
#include "windrow/ops/operators.h"

namespace windrow::op {
namespace {

Terms of_layer_norm(const Signature& s) {
  return {GradientTerm{&layer_norm_gradient, {x(), gradient()}, {}, s.attributes}};
}
Terms of_rms_norm(const Signature& s) {
  return {GradientTerm{&rms_norm_gradient, {x(), gradient()}, {}, s.attributes}};
}

}  // namespace

constinit const Operator layer_norm{.name = "layer_norm",
                                    .infer = same_shape,
                                    .gradients = of_layer_norm,
                                    .locality = Locality::rowwise,
                                    .zero = 0b1,
                                    .attributes = "with_epsilon"};
constinit const Operator layer_norm_gradient{.name = "layer_norm_gradient",
                                             .inputs = 2,
                                             .infer = same_shape,
                                             .locality = Locality::rowwise,
                                             .zero = 0b10,
                                             .attributes = "with_epsilon"};
constinit const Operator rms_norm{.name = "rms_norm",
                                  .infer = same_shape,
                                  .gradients = of_rms_norm,
                                  .locality = Locality::rowwise,
                                  .zero = 0b1,
                                  .attributes = "with_epsilon"};
constinit const Operator rms_norm_gradient{.name = "rms_norm_gradient",
                                           .inputs = 2,
                                           .infer = same_shape,
                                           .locality = Locality::rowwise,
                                           .zero = 0b10,
                                           .attributes = "with_epsilon"};

Attributes with_epsilon(double epsilon) {
  if (!is_positive_float(epsilon)) {
    throw MisuseError("with_epsilon: " + shortest_text(epsilon) + "; expected a finite float above 0");
  }
  return {.made_by = "with_epsilon", .values = {epsilon, 0}};
}

}  // namespace windrow::op
