// Operators: a name, a rule for shapes, and a rule for gradients.
//
// An operator maps matrices to one matrix. Kernels compute it; each device has its own (kernel.h). docs/own_operator.md
// shows how to add an operator.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/engine/error.h"
#include "windrow/engine/var.h"
#include "windrow/ops/internal/matrix.h"

namespace windrow {

struct GradientTerm;
struct IndexRange;
struct Signature;
struct Type;
using GradientTerms = std::vector<std::optional<GradientTerm>>;

/// Which parts of the operands a part of the result depends on.
enum class Locality {
  elementwise,  ///< an element depends on the elements at its own position only; can be computed in place of an operand
  rowwise,      ///< a row depends on that row of each operand and index operand, and on all of the operands in `whole`
  sums_rows,    ///< the result is a sum over the rows of the operands, so parts can be added one after the other
  mixed,        ///< anything else
};

/// Immutable. It must outlive everything that uses it, so define it as a constant of the program.
struct Operator {
  static constexpr std::size_t any_number = static_cast<std::size_t>(-1);

  /// Identifies the operator's kernels: unique within a kernel table.
  OpName name = {};
  std::size_t inputs = 1;
  std::size_t index_inputs = 0;
  /// Returns the type of the result. Throws shape_error() if the types do not fit. The numbers of operands and the
  /// attributes' maker have been checked before.
  Type (*infer)(const Operator& self, const Signature& signature) = nullptr;
  /// Returns one term for each input; the term of an input without a gradient is empty. Null: the operator has no
  /// gradient.
  GradientTerms (*gradients)(const Signature& signature) = nullptr;
  Locality locality = Locality::mixed;
  /// For rowwise: bit k is set if each row depends on all rows of operand k, such as a parameter, or the rows to gather
  /// from.
  unsigned whole = 0;
  /// Bit k is set if the result is zero wherever all of operand k is zero. Values that are known to be zero are not
  /// computed.
  unsigned zero = 0;
  /// For sums_rows: a column of the result depends only on that column of each operand, and on all indices.
  bool columnwise = false;
  /// The function that makes the attributes; empty if there are none.
  std::string_view attributes = {};
  /// For elementwise: the element as one C++ expression of the operands' elements x, y and z, from which the code of
  /// fused kernels is printed. a and b are the attributes' values, and old is the element before, for `updates`; all
  /// are of one floating point type, to which constants are converted: decltype(x)(0.5). It calls exp, fabs, fmax,
  /// fmin, log, log1p, sqrt and tanh, by name alone. Empty: the operator is not fused.
  std::string_view scalar = {};
  /// True if the operator updates the old contents of its result; it accepts Write::add only.
  bool updates = false;
  /// For `updates`: how many other matrices of the result's shape it updates, such as the averages of an optimiser.
  std::size_t states = 0;
  /// The valid numbers of an index operand, so that others are rejected before a kernel sees them. Null: only the
  /// kernels check.
  IndexRange (*index_range)(const Signature& signature, std::size_t number) = nullptr;
};

/// The number of rows of a value: a fixed number, or the number of vertices or edges of a batch, which is known at run
/// time. A value.
class Rows {
 public:
  /// Throws MisuseError for a negative number.
  static Rows count(Index rows);
  static Rows vertices() { return Rows(Of::vertices, 0); }
  static Rows edges() { return Rows(Of::edges, 0); }

  bool counted() const { return of_ == Of::number; }
  /// Throws MisuseError unless counted().
  Index number() const;
  friend bool operator==(const Rows&, const Rows&) = default;

 private:
  enum class Of : std::uint8_t { number, vertices, edges };
  Rows(Of of, Index number) : of_(of), number_(number) {}

  Of of_;
  Index number_;  // 0 unless of_ is number
};

/// The shape of a value. Elements are float, or int32 for indices.
struct Type {
  Rows rows;
  Index width;
  friend bool operator==(const Type&, const Type&) = default;
};

/// "3 x 4", "vertices x 256".
std::string to_string(const Type& type);

/// The constants of one application of an operator. The function that Operator::attributes names makes them; infer()
/// throws if another function made them. A value.
struct Attributes {
  std::string_view made_by = {};  ///< name of the function, a string literal; empty for no attributes
  Rows rows = Rows::vertices();   ///< of the result, if the operands do not determine it
  std::array<Index, 8> sizes{};
  std::array<double, 2> values{};
  /// Values are compared by their bits: 0 and -0 differ, and NaN equals itself.
  friend bool operator==(const Attributes& a, const Attributes& b) {
    return a.made_by == b.made_by && a.rows == b.rows && a.sizes == b.sizes && same_bits(a.values, b.values);
  }
  static bool same_bits(const std::array<double, 2>& a, const std::array<double, 2>& b) {
    return std::bit_cast<std::array<std::uint64_t, 2>>(a) == std::bit_cast<std::array<std::uint64_t, 2>>(b);
  }
};

/// The types that an operator is applied to.
struct Signature {
  std::vector<Type> in = {};
  std::vector<Type> indices = {};  ///< int32 operands, which have no gradient
  Attributes attributes = {};
};

/// Names an operand of a gradient: an operand of the operator, its result, or the gradient of its result.
struct Ref {
  enum class Of { operand, result, gradient } of;
  std::size_t number = 0;

  static Ref operand(std::size_t number) { return {Of::operand, number}; }
  static Ref result() { return {Of::result}; }
  static Ref gradient() { return {Of::gradient}; }
};

/// The gradient of one operand: operator `op`, applied to the values that `in` names and to the index operands of the
/// original operator that `indices` names. If `op` is null, the gradient is the value that `in` names.
struct GradientTerm {
  const Operator* op;
  std::vector<Ref> in = {};
  std::vector<std::size_t> indices = {};
  Attributes attributes = {};
};

/// The numbers from `first` to `last`, both included.
struct IndexRange {
  Index first, last;

  bool contains(Index index) const { return first <= index && index <= last; }
};
/// "0 to 4", for messages about an index outside the range.
std::string to_string(const IndexRange& range);

/// The type of op's result. Throws MisuseError, naming the operator and all shapes, if the operands do not fit.
Type infer(const Operator& op, const Signature& signature);

/// An error such as "matmul: operands 2 x 3, 4 x 5; expected ...", with `expected` at the end.
MisuseError shape_error(const Operator& op, const Signature& signature, const std::string& expected);

}  // namespace windrow
