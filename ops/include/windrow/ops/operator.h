// What an operator is: a name, a rule for shapes, and a rule for gradients.
//
// An operator maps matrices to one matrix. Nothing here computes: kernels do, and each device has its own (kernel.h).
// docs/own_operator.md shows how to add one.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "windrow/engine/error.h"
#include "windrow/engine/op_name.h"
#include "windrow/ops/matrix.h"

namespace windrow {

/// How many rows a value has: a number, or as many as a batch will have vertices or edges. A value.
class Rows {
 public:
  static Rows count(Index rows) { return Rows(rows); }
  static Rows vertices() { return Rows(-1); }
  static Rows edges() { return Rows(-2); }
  /// For Attributes, which hold numbers.
  static Rows from_code(Index code) { return Rows(code); }
  Index code() const { return code_; }

  bool counted() const { return code_ >= 0; }
  friend bool operator==(Rows, Rows) = default;

 private:
  explicit Rows(Index code) : code_(code) {}
  Index code_;
};

/// The shape of a value. Its elements are float, or int32 for indices.
struct Type {
  Rows rows;
  Index width;
  friend bool operator==(const Type&, const Type&) = default;
};

/// "3 x 4", "vertices x 256".
std::string to_string(const Type& type);

/// The constants of one application of an operator; each operator says what it takes from them. A value.
struct Attributes {
  std::array<Index, 2> sizes{};
  std::array<double, 2> values{};
  friend bool operator==(const Attributes&, const Attributes&) = default;
};

/// What an operator is applied to.
struct Signature {
  std::vector<Type> in;
  std::vector<Type> indices;  ///< int32 operands, which have no gradient
  Attributes attributes;
};

struct Operator;

/// Names an operand of a gradient: an operand of the operator, its result, or the gradient of its result.
struct Ref {
  enum class Of { operand, result, gradient } of;
  std::size_t number = 0;

  static Ref operand(std::size_t number) { return {Of::operand, number}; }
  static Ref result() { return {Of::result}; }
  static Ref gradient() { return {Of::gradient}; }
};

/// The gradient of one operand, as one application of another operator to what `in` names and to those of the
/// operator's own indices that `indices` names. Without an operator it is what `in` names.
struct GradientTerm {
  const Operator* op;
  std::vector<Ref> in;
  std::vector<std::size_t> indices = {};
  Attributes attributes = {};
};
using GradientTerms = std::vector<std::optional<GradientTerm>>;

/// Immutable, and lives as long as anything that uses it: make it a constant of the program.
struct Operator {
  static constexpr std::size_t any_number = static_cast<std::size_t>(-1);

  /// Which kernels implement it: unique among the operators of a kernel table.
  OpName name;
  std::size_t inputs = 1;
  std::size_t index_inputs = 0;
  /// The type of the result. Throws shape_error() for operands that do not fit. Counts are checked before.
  Type (*infer)(const Operator& self, const Signature& signature);
  /// One term for each input, empty for one without a gradient. Null: the operator has none.
  GradientTerms (*gradients)(const Signature& signature) = nullptr;
  /// Each element of the result depends on the elements of the inputs at the same place, and on nothing else: the
  /// operator may be applied to any part of the rows and columns.
  bool elementwise = false;
  /// It changes what its result held: for Write::add only.
  bool updates = false;
};

/// The type of op's result. Throws MisuseError, naming the operator and all shapes, for operands that do not fit.
Type infer(const Operator& op, const Signature& signature);

/// "matmul: operands 2 x 3, 4 x 5; " and then what was expected.
MisuseError shape_error(const Operator& op, const Signature& signature, const std::string& expected);

}  // namespace windrow
