// What the rules of the operators share.
#pragma once

#include "windrow/ops/operator.h"

namespace windrow::op {

using Terms = GradientTerms;
inline Ref x() { return Ref::operand(0); }
inline Ref y() { return Ref::operand(1); }
inline Ref result() { return Ref::result(); }
inline Ref gradient() { return Ref::gradient(); }
/// The operand's gradient is the result's.
inline GradientTerm passed_on() { return {nullptr, {gradient()}}; }

/// All operands have one shape, and the result has it too.
Type same_shape(const Operator& op, const Signature& signature);

/// For maximum_gradient: whether an operand that equals the other gets the gradient.
inline Attributes with_ties(bool ties) { return {.sizes = {ties, 0}}; }

/// Throws shape_error with `expected` unless `fits`.
inline void require(bool fits, const Operator& op, const Signature& signature, const char* expected) {
  if (!fits) throw shape_error(op, signature, expected);
}

/// One index column for each row of in[0].
void require_index(Index columns, const Operator& op, const Signature& signature);

/// The row count that to_rows() put into the attributes.
inline Rows target_rows(const Signature& signature) { return Rows::from_code(signature.attributes.sizes[0]); }
/// Its inverse, for gradients that give x its rows back.
inline Attributes rows_of(const Type& type) { return {.sizes = {type.rows.code(), 0}}; }

}  // namespace windrow::op
