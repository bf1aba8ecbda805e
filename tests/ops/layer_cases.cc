#include "tests/ops/case_maker.h"

namespace windrow::testing {
namespace {

/// An elementwise operator of `operands` operands that has attributes.
Make elementwise_with(int operands, const Attributes& attributes) {
  return [operands, attributes](Maker& m) {
    elementwise(operands)(m);
    m.made.signature.attributes = attributes;
  };
}

}  // namespace

const Makes& makes_of_layers() {
  static const Makes table = {
      {"scale_shift", elementwise_with(1, op::scaled_and_shifted(-0.75, 0.5))},
      {"reciprocal",
       [](Maker& m) {
         m.positive_operand(counted(m.rows, m.width));
         m.made.signature.attributes = op::scaled_by(-0.75);
       }},
  };
  return table;
}

}  // namespace windrow::testing
