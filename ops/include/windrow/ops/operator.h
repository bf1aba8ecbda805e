// What an operator is: a name, a rule for shapes, and a rule for gradients.
//
// An operator maps matrices to one matrix. Nothing here computes: kernels do, and each device has its own (kernel.h).
// docs/own_operator.md shows how to add one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/engine/error.h"
#include "windrow/engine/op_name.h"
#include "windrow/ops/matrix.h"

namespace windrow {

/// How many rows a value has: a number, or as many as a batch will have vertices or edges. A value.
class Rows {
 public:
  /// Throws MisuseError for a negative number.
  static Rows count(Index rows);
  static Rows vertices() { return Rows(Of::vertices, 0); }
  static Rows edges() { return Rows(Of::edges, 0); }

  bool counted() const { return of_ == Of::number; }
  /// Throws MisuseError unless counted.
  Index number() const;
  friend bool operator==(const Rows&, const Rows&) = default;

 private:
  enum class Of : std::uint8_t { number, vertices, edges };
  Rows(Of of, Index number) : of_(of), number_(number) {}

  Of of_;
  Index number_;  // 0 unless of_ is number
};

/// The shape of a value. Its elements are float, or int32 for indices.
struct Type {
  Rows rows;
  Index width;
  friend bool operator==(const Type&, const Type&) = default;
};

/// "3 x 4", "vertices x 256".
std::string to_string(const Type& type);

/// The constants of one application of an operator. Made by the function that the operator names, so that they cannot
/// be forgotten. A value.
struct Attributes {
  std::string_view made_by = {};  ///< a literal; empty for none
  Rows rows = Rows::vertices();   ///< of the result, where the operands do not tell
  std::array<Index, 8> sizes{};
  std::array<double, 2> values{};
  friend bool operator==(const Attributes&, const Attributes&) = default;
};

/// What an operator is applied to.
struct Signature {
  std::vector<Type> in = {};
  std::vector<Type> indices = {};  ///< int32 operands, which have no gradient
  Attributes attributes = {};
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
  std::vector<Ref> in = {};
  std::vector<std::size_t> indices = {};
  Attributes attributes = {};
};
using GradientTerms = std::vector<std::optional<GradientTerm>>;

/// `first` to `last`.
struct IndexRange {
  Index first, last;
};

/// Which parts of the operands a part of the result needs.
enum class Locality {
  elementwise,  ///< an element needs the elements at its own place only; may be computed in place of an operand
  rowwise,      ///< a row needs that row of each operand and index operand, and all of the operands in `whole`
  sums_rows,    ///< the result is a sum over the rows of its operands: parts may be added one after the other
  mixed,        ///< anything
};

/// Immutable, and lives as long as anything that uses it: make it a constant of the program.
struct Operator {
  static constexpr std::size_t any_number = static_cast<std::size_t>(-1);

  /// Which kernels implement it: unique among the operators of a kernel table.
  OpName name = {};
  std::size_t inputs = 1;
  std::size_t index_inputs = 0;
  /// The type of the result. Throws shape_error() for operands that do not fit. Counts and attributes are checked
  /// before.
  Type (*infer)(const Operator& self, const Signature& signature) = nullptr;
  /// One term for each input, empty for one without a gradient. Null: the operator has none.
  GradientTerms (*gradients)(const Signature& signature) = nullptr;
  Locality locality = Locality::mixed;
  /// For rowwise: bit k is set if each row needs all of operand k, a parameter or the rows to be gathered from.
  unsigned whole = 0;
  /// Bit k is set if the result is zero wherever all of operand k is zero; what is known to be zero is not computed.
  unsigned zero = 0;
  /// For sums_rows: a column of the result needs only that column of each operand, and all indices.
  bool columnwise = false;
  /// The function that makes its attributes; empty if it has none.
  std::string_view attributes = {};
  /// It changes what its result held: for Write::add only.
  bool updates = false;
  /// Which numbers an index operand may hold, so that others are refused before a kernel sees them. Null: only the
  /// kernels know.
  IndexRange (*index_range)(const Signature& signature, std::size_t number) = nullptr;
};

/// The type of op's result. Throws MisuseError, naming the operator and all shapes, for operands that do not fit.
Type infer(const Operator& op, const Signature& signature);

/// "matmul: operands 2 x 3, 4 x 5; " and then what was expected.
MisuseError shape_error(const Operator& op, const Signature& signature, const std::string& expected);

}  // namespace windrow
