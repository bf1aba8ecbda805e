// Operators of training steps: shapes.
#include <algorithm>

#include "rules.h"
#include "windrow/ops/operators.h"

namespace windrow {

StepNumbers StepNumbers::of(const float* row) {
  StepNumbers numbers;
  std::copy_n(row, count, &numbers.rate);
  return numbers;
}

namespace op {
namespace {

void require_numbers(const Type& type, const Operator& op, const Signature& s) {
  require(type == Type{Rows::count(1), StepNumbers::count}, op, s, "the numbers of a step, 1 x 11");
}
Type infer_step(const Operator& op, const Signature& s) {
  require_numbers(s.in[1], op, s);
  return s.in[0];
}
Type infer_step_rows(const Operator& op, const Signature& s) {
  require_numbers(s.in[1], op, s);
  require_index(1, op, s);
  return {s.attributes.rows, s.in[0].width};
}
Type infer_squared_norm(const Operator&, const Signature&) { return {Rows::count(1), 1}; }
Type infer_limit_norm(const Operator& op, const Signature& s) {
  require(!s.in.empty(), op, s, "the numbers of a step, and squared norms");
  require_numbers(s.in[0], op, s);
  for (std::size_t k = 1; k < s.in.size(); ++k) {
    require(s.in[k] == Type{Rows::count(1), 1}, op, s, "squared norms 1 x 1");
  }
  return s.in[0];
}

/// Each row depends on the row of the gradient, and on the numbers.
consteval Operator step(OpName name, std::size_t states) {
  return {.name = name,
          .inputs = 2,
          .infer = infer_step,
          .locality = Locality::rowwise,
          .whole = 0b10,
          .updates = true,
          .states = states};
}
consteval Operator step_rows(OpName name, std::size_t states) {
  return {.name = name,
          .inputs = 2,
          .index_inputs = 1,
          .infer = infer_step_rows,
          .attributes = "to_rows",
          .updates = true,
          .states = states};
}

}  // namespace

constinit const Operator sgd_step = step("sgd_step", 0);
constinit const Operator momentum_step = step("momentum_step", 1);
constinit const Operator adagrad_step = step("adagrad_step", 1);
constinit const Operator rmsprop_step = step("rmsprop_step", 1);
constinit const Operator adam_step = step("adam_step", 2);
constinit const Operator sgd_step_rows = step_rows("sgd_step_rows", 0);
constinit const Operator momentum_step_rows = step_rows("momentum_step_rows", 1);
constinit const Operator adagrad_step_rows = step_rows("adagrad_step_rows", 1);
constinit const Operator rmsprop_step_rows = step_rows("rmsprop_step_rows", 1);
constinit const Operator adam_step_rows = step_rows("adam_step_rows", 2);

constinit const Operator squared_norm{
    .name = "squared_norm", .infer = infer_squared_norm, .locality = Locality::sums_rows, .zero = 0b1};
constinit const Operator limit_norm{.name = "limit_norm", .inputs = Operator::any_number, .infer = infer_limit_norm};

}  // namespace op
}  // namespace windrow
