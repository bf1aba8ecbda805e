// Operators of training steps: shapes.
#include <algorithm>

#include "operators/rules.h"
#include "windrow/ops/operators.h"

namespace windrow {

StepNumbers StepNumbers::of(const float* row) {
  StepNumbers numbers;
  std::copy_n(row, count, &numbers.rate);
  return numbers;
}

namespace {

double power(double base, std::uint64_t exponent) {
  constexpr double nothing = 0x1p-60;  // beside 1
  double result = 1;
  for (; exponent != 0 && result > nothing; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace

void StepNumbers::correct(std::uint64_t step) {
  const auto whole = [](float x, float tail) { return static_cast<double>(x) + static_cast<double>(tail); };
  first_correction = static_cast<float>(1 - power(whole(first, first_tail), step));
  second_correction = static_cast<float>(1 - power(whole(second, second_tail), step));
}

namespace op {
namespace {

void require_numbers(const Type& type, const Operator& op, const Signature& s) {
  static_assert(StepNumbers::count == 14);
  require(type == Type{Rows::count(1), StepNumbers::count}, op, s, "the numbers of a step, 1 x 14");
}
Type infer_step(const Operator& op, const Signature& s) {
  require_numbers(s.in[1], op, s);
  return s.in[0];
}
Type infer_step_rows(const Operator& op, const Signature& s) {
  require_numbers(s.in[1], op, s);
  require_index(1, op, s);
  require(s.in.size() == 2 || s.in[2] == Type{s.attributes.rows, 1}, op, s, "the steps of each row of the result");
  return {s.attributes.rows, s.in[0].width};
}
Type infer_count_step_rows(const Operator& op, const Signature& s) {
  require_numbers(s.in[0], op, s);
  require(s.indices[0].width == 1, op, s, "indices of width 1");
  return {s.attributes.rows, 1};
}
Type infer_squared_norm(const Operator&, const Signature&) { return {Rows::count(1), 2}; }
Type infer_limit_norm(const Operator& op, const Signature& s) {
  require(!s.in.empty(), op, s, "the numbers of a step, and squared norms");
  require(s.in[0].width == StepNumbers::count, op, s, "rows of the numbers of a step, of width 14");
  for (std::size_t k = 1; k < s.in.size(); ++k) {
    require(s.in[k].rows == Rows::count(1) && (s.in[k].width == 1 || s.in[k].width == 2), op, s,
            "squared norms 1 x 2 or 1 x 1");
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
consteval Operator step_rows(OpName name, std::size_t states, std::size_t inputs = 2) {
  return {.name = name,
          .inputs = inputs,
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
constinit const Operator adam_step_rows = step_rows("adam_step_rows", 2, 3);
constinit const Operator count_step_rows{.name = "count_step_rows",
                                         .index_inputs = 1,
                                         .infer = infer_count_step_rows,
                                         .attributes = "to_rows",
                                         .updates = true};

constinit const Operator squared_norm = sum_of_rows({.name = "squared_norm", .infer = infer_squared_norm, .zero = 0b1});
constinit const Operator limit_norm{.name = "limit_norm", .inputs = Operator::any_number, .infer = infer_limit_norm};

}  // namespace op
}  // namespace windrow
