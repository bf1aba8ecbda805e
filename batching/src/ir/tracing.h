// Makes functions: of one kind by tracing the body of a vertex function, and of several kinds. Start here; then
// builder.h, passes.h, and the public headers program.h, plan.h, layout.h and execution.h, in the order in which a
// vertex function becomes engine ops.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "windrow/batching/internal/ir.h"

namespace windrow::ir {

/// Makes one function of several kinds. Throws MisuseError as the constructor of VertexFunction does.
Function with_kinds(std::string name, const std::vector<const Function*>& parts);

/// The place of a parameter in the list; appends the parameter if it is missing.
std::size_t number_in(std::vector<ParameterName>& parameters, const ParameterName& parameter);

/// Fills in the fields that follow from the nodes. Throws MisuseError for vertex types of too many bits.
void finish(Function& function);

/// Throws MisuseError for a state that no kind scatters.
void check_complete(const Function& function);

/// Throws MisuseError for an operator that cannot compute vertices or edges by rows.
void check_locality(const Operator& op, const Signature& signature, const Type& result);

/// The signature of a rowwise operator some of whose operands are parameters of one row: each such parameter gets the
/// type of the rows for which it stands. An elementwise operator uses one element for all columns; if all operands are
/// parameters, also one row for all rows, and one column for all columns. Throws MisuseError for a parameter of several
/// rows beside values of vertices.
Signature with_rows_of_parameters(const Operator& op, Signature signature);

/// Records the nodes of a vertex function while its body runs.
class Tracing : public std::enable_shared_from_this<Tracing> {
 public:
  Function function;  ///< of one kind

  Tracing(std::string name, const VertexFunction::Shape& shape);
  VertexKind& kind() { return function.kinds[0]; }

  Expr expr(Node node);
  Expr expr_of(Value value);
  IndexExpr index_expr(std::size_t pull);
  /// The node of an operand. Adds a node for a parameter that has none yet.
  Value value_of(const Operand& operand);
  Expr apply(const Operator& op, std::span<const Operand> in, std::span<const IndexExpr> indices,
             const Attributes& attributes);
  /// A row of equal numbers for each vertex.
  Expr constant(Index width, double value);
  /// The same, for each edge.
  Expr constant_of_edges(Index width, double value);
  /// Adds the index of each vertex's row in the gradient of the last output.
  void find_gradient();
  /// A row for each edge: the row of its consumer.
  Expr to_children(const Expr& x);
  /// Throws MisuseError unless x is a value of edges. `what`: the name of the function for errors.
  void check_of_edges(const char* what, const Expr& x) const;
  /// Reduces the rows of a vertex's edges by an operator on segments.
  Expr over_children(const char* what, const Operator& op, const Expr& x);
  /// 1 for each element of an edge that is the first to reach the maximum over the edges of its consumer, otherwise 0.
  Expr is_first_maximum(const Expr& x);
  /// The weight of each child in a mean over children.
  Expr share_of_child();
  /// The runner fills in the keys of masks, and specialise() leaves dropout out of programs for inference.
  Expr dropout(const Expr& x, const Dropout& how);
  /// From now on, keys and seed of dropout() come from this index operand; without an operand, there is no dropout.
  void set_dropout_keys(const std::optional<IndexExpr>& keys);
  /// The vertex's row of a tensor.
  Expr row_of(const std::string& tensor, Index width);
  /// The tracing to which all operands belong. Throws MisuseError if there is none, or more than one.
  static std::shared_ptr<Tracing> of(const std::string& what, std::span<const Operand> in,
                                     std::span<const IndexExpr> indices);

 private:
  /// The result of a check, whose errors then name the function.
  template <class Checked>
  auto told(Checked checked) const;
  /// Repeats a parameter of one row or column in each row or column of a value of that type.
  Operand repeated(const Operand& x, const Type& type);
  /// A sum, difference, product or quotient of a value and a row of a parameter. The negative or reciprocal row is
  /// computed once for all vertices. None for other operators and operands.
  std::optional<Expr> with_row(const Operator& op, std::span<const Operand> in, const Type& type);
  Expr add(const Operator& op, const std::vector<Operand>& in, std::span<const IndexExpr> indices,
           const Attributes& attributes);
  /// The pull of indices that describe the structure of the graph.
  std::size_t structure(IndexField::Holds holds);

  std::uint32_t dropouts_ = 0;
  enum class DropoutKeys { filled_in, pulled, none } dropout_keys_ = DropoutKeys::filled_in;
  std::size_t dropout_pull_ = 0;  // of the index operand, if they are pulled
};

}  // namespace windrow::ir
