#include "operators/rules.h"

#include "windrow/ops/number.h"

namespace windrow::op {

Type same_shape(const Operator& op, const Signature& signature) {
  for (const Type& type : signature.in) require(type == signature.in[0], op, signature, "operands of one shape");
  return signature.in[0];
}

void require_index(Index columns, const Operator& op, const Signature& signature) {
  if (signature.indices[0] != Type{signature.in[0].rows, columns}) {
    throw shape_error(op, signature, "indices " + to_string({signature.in[0].rows, columns}));
  }
}

void require_rate(const char* op, double rate, double decay) {
  if (is_float(rate) && is_float(decay)) return;
  throw MisuseError(std::string(op) + ": rate " + shortest_text(rate) + ", decay " + shortest_text(decay) +
                    "; expected numbers that a float holds");
}

}  // namespace windrow::op
