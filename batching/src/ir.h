// The intermediate representation: typed nodes in single static assignment. Start here; then builder.h, program.h,
// plan.h, layout.h, batch.h, in the order in which a vertex function becomes engine ops.
//
// A value has a row for each vertex (its type says "vertices x width"), or it belongs to no vertex: parameters, and
// what is made of them, have a counted number of rows.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "windrow/batching/expr.h"
#include "windrow/ops/operator.h"

namespace windrow::ir {

/// A place in a list of nodes.
using Value = std::int32_t;
inline constexpr Value no_value = -1;
inline std::size_t at(Value value) { return static_cast<std::size_t>(value); }

enum class Code : std::uint8_t {
  parameter,  ///< `number` among the parameters
  pull,       ///< `number` among the pulls
  gather,     ///< state `number` of `child`; in programs: of all children, next to each other
  fill,       ///< `constant` everywhere
  apply,      ///< op, to `in` and the index pulls `indices`
  sum,        ///< zeros, with in[k] added from column at[k] on
  // Only in programs:
  scatter,   ///< in[0] handed to the consumers, as state `number`
  incoming,  ///< the gradient of what was scattered as state `number`: the sum of what the consumers send
  send,      ///< a sum that is sent to the children, as the gradient of the gathered state `number`
  gradient,  ///< a sum that is the gradient of parameter `number`
};

struct Node {
  Code code;
  Type type;
  int vertex_type = -1;  ///< in programs: which type of vertex it is a value of; -1 for counted rows
  std::size_t number = 0;
  Index child = -1;
  double constant = 0;
  const Operator* op = nullptr;
  std::vector<Value> in = {};
  std::vector<std::size_t> indices = {};
  std::vector<Index> at = {};
  Attributes attributes = {};

  bool is_sum() const { return code == Code::sum || code == Code::send || code == Code::gradient; }
  bool is(const Operator& which) const { return code == Code::apply && op == &which; }
  bool of_vertices() const { return !type.rows.counted(); }
  bool zero() const { return code == Code::fill && constant == 0; }
  /// Columns of another value: it needs no step and no storage.
  bool is_view() const { return is(op::slice) && of_vertices(); }
  friend bool operator==(const Node&, const Node&) = default;
};

struct Field {
  std::string name;
  Index width;
};
struct IndexField {
  std::string name;
  Index width;
  bool optional;
};
struct Output {
  std::string name;
  Value value;
};

/// A vertex function as it was traced.
struct Function {
  std::string name;
  std::size_t arity = 0;
  std::uint64_t parameters = 0;  ///< which Parameters it uses; 0 for none
  std::vector<Field> states, pulls;
  std::vector<IndexField> index_pulls;
  std::vector<Node> nodes;
  std::vector<Value> scattered;  ///< by state
  std::vector<Output> pushes;
  std::vector<Value> losses;
};

/// It computes a vertex from that vertex alone, and parameters.
inline bool by_rows(const Operator& op) {
  return op.locality == Locality::elementwise || op.locality == Locality::rowwise;
}

/// The type of a vertex: a bit for each child it has, then one for each optional index it has.
using VertexType = std::uint32_t;
inline bool has_child(VertexType type, std::size_t k) { return (type >> k & 1u) != 0; }
inline bool has_index(const Function& function, VertexType type, std::size_t pull) {
  if (!function.index_pulls[pull].optional) return true;
  std::size_t bit = function.arity;
  for (std::size_t i = 0; i < pull; ++i) bit += function.index_pulls[i].optional ? 1 : 0;
  return (type >> bit & 1u) != 0;
}
/// How many children it has, or how many before child k.
inline Index children(const Function& function, VertexType type) {
  return std::popcount(type & ((1u << function.arity) - 1));
}
inline Index children_before(VertexType type, std::size_t k) { return std::popcount(type & ((1u << k) - 1)); }

/// What a vertex function records while its body runs.
class Trace : public std::enable_shared_from_this<Trace> {
 public:
  Function function;

  Expr expr(Node node);
  Expr expr_of(Value value);
  IndexExpr index_expr(std::size_t pull);
  /// The node of an operand, added if it is a parameter that is not there yet.
  Value value_of(const Operand& operand);
  Expr apply(const Operator& op, std::span<const Operand> in, std::span<const IndexExpr> indices,
             const Attributes& attributes);
  /// The trace that all of them belong to. Throws MisuseError if there is none, or more than one.
  static std::shared_ptr<Trace> of(const std::string& what, std::span<const Operand> in,
                                   std::span<const IndexExpr> indices);

 private:
  void check_locality(const Operator& op, const Signature& signature, const Type& result) const;
};

}  // namespace windrow::ir
