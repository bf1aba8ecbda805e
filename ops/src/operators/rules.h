// Functions that the rules of operators share. Start here for operators, with host.h for kernels.
#pragma once

#include "windrow/ops/operator.h"

namespace windrow::op {

using Terms = GradientTerms;
inline Ref x() { return Ref::operand(0); }
inline Ref y() { return Ref::operand(1); }
inline Ref result() { return Ref::result(); }
inline Ref gradient() { return Ref::gradient(); }
/// For an operator with one operand that has a gradient: it is `op` of the named values, of the operator's indices if
/// it takes some, and with the operator's attributes if it has some.
template <const Operator& op, Ref (*... in)()>
Terms term(const Signature& s) {
  return {GradientTerm{&op,
                       {in()...},
                       op.index_inputs == 0 ? std::vector<std::size_t>() : std::vector<std::size_t>{0},
                       op.attributes.empty() ? Attributes() : s.attributes}};
}
/// The operand's gradient is the result's.
inline GradientTerm passed_on() { return {nullptr, {gradient()}}; }

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

/// Throws shape_error with `expected` unless `fits`.
inline void require(bool fits, const Operator& op, const Signature& signature, const char* expected) {
  if (!fits) throw shape_error(op, signature, expected);
}

/// One index column for each row of in[0].
void require_index(Index columns, const Operator& op, const Signature& signature);

/// For the attributes of gradient descent: throws MisuseError unless floats hold both numbers.
void require_rate(const char* op, double rate, double decay);

}  // namespace windrow::op
