// Prints elementwise_formulas.h: a line for each operator that has a formula, WINDROW_ELEMENTWISE or WINDROW_UPDATE, of
// its name, the number of its operands and the formula.
#include <iostream>

#include "windrow/ops/operators.h"

int main() {
  std::cout << "// Printed by print_formulas.cc. Included where the macros are defined, several times.\n";
  for (const windrow::Operator* op : windrow::op::all()) {
    if (op->scalar.empty()) continue;
    std::cout << (op->updates ? "WINDROW_UPDATE(" : "WINDROW_ELEMENTWISE(") << op->name.text() << ", " << op->inputs
              << ", " << op->scalar << ")\n";
  }
  std::cout.flush();
  return std::cout ? 0 : 1;
}
