// Prints elementwise_formulas.h: one WINDROW_FORMULA line for each operator with a formula. Its arguments are the name,
// the number of operands, whether the operator updates its result, and the formula.
#include <iostream>

#include "windrow/ops/operators.h"

int main() {
  std::cout << "// Printed by print_formulas.cc. Included where the macro is defined, several times.\n";
  for (const windrow::Operator* op : windrow::op::all()) {
    if (op->scalar.empty()) continue;
    std::cout << "WINDROW_FORMULA(" << op->name.text() << ", " << op->inputs << ", " << (op->updates ? "true" : "false")
              << ", " << op->scalar << ")\n";
  }
  std::cout.flush();
  return std::cout ? 0 : 1;
}
