// Functions that the rules of operators share. Start here for operators, with host.h for kernels.
#pragma once

#include "windrow/ops/operator.h"

namespace windrow::op {

using Terms = GradientTerms;
inline Ref x() { return Ref::operand(0); }
inline Ref y() { return Ref::operand(1); }
inline Ref result() { return Ref::result(); }
inline Ref gradient() { return Ref::gradient(); }
/// The gradient of an operand: `op` of the named values, of the operator's indices if it takes some, and with the
/// operator's attributes if it has some.
template <const Operator& op, Ref (*... in)()>
std::optional<GradientTerm> by(const Signature& s) {
  return GradientTerm{&op,
                      {in()...},
                      op.index_inputs == 0 ? std::vector<std::size_t>() : std::vector<std::size_t>{0},
                      op.attributes.empty() ? Attributes() : s.attributes};
}
/// The operand's gradient is the result's.
inline std::optional<GradientTerm> passed_on(const Signature&) { return GradientTerm{nullptr, {gradient()}}; }
/// The operand has no gradient.
inline std::optional<GradientTerm> no_gradient(const Signature&) { return std::nullopt; }
/// The gradients of an operator, by operand.
template <std::optional<GradientTerm> (*... of)(const Signature&)>
Terms terms(const Signature& s) {
  return {of(s)...};
}
/// The gradients of an operator with one operand that has a gradient.
template <const Operator& op, Ref (*... in)()>
Terms term(const Signature& s) {
  return {by<op, in...>(s)};
}

/// Constants of operators, by their locality.
consteval Operator rowwise(Operator of) {
  of.locality = Locality::rowwise;
  return of;
}
consteval Operator sum_of_rows(Operator of) {
  of.locality = Locality::sums_rows;
  return of;
}

/// The rule for operands of one shape, which is also the result's.
Type same_shape(const Operator& op, const Signature& signature);

/// A column, with a row for each of the first operand.
inline Type one_column(const Operator&, const Signature& s) { return {s.in[0].rows, 1}; }
/// A column, for operands of one shape.
inline Type column_of_two(const Operator& op, const Signature& s) { return {same_shape(op, s).rows, 1}; }

/// Throws shape_error with `expected` unless `fits`.
inline void require(bool fits, const Operator& op, const Signature& signature, const char* expected) {
  if (!fits) throw shape_error(op, signature, expected);
}

/// One index column for each row of in[0].
void require_index(Index columns, const Operator& op, const Signature& signature);

/// A column, with a row for each of the first operand and of an index column.
inline Type one_column_by_index(const Operator& op, const Signature& s) {
  require_index(1, op, s);
  return one_column(op, s);
}

/// The rule of a gradient with respect to the operand of an operator whose rule is `infer`, from that operand and the
/// gradient of the result.
template <Type (*infer)(const Operator&, const Signature&)>
Type like_operand(const Operator& op, const Signature& s) {
  require(s.in[1] == infer(op, s), op, s, "an operand, then a gradient of the result's shape");
  return s.in[0];
}

/// For the attributes of gradient descent: throws MisuseError unless floats hold both numbers.
void require_rate(const char* op, double rate, double decay);

}  // namespace windrow::op
