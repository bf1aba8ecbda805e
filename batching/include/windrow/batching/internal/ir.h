// The intermediate representation: typed nodes in single static assignment.
//
// A value has a row for each vertex (type "vertices x width") or for each edge from a vertex to its children (type
// "edges x width"). Parameters, and values derived from them alone, belong to no vertex and have a fixed number of
// rows.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "windrow/batching/vertex_function.h"
#include "windrow/ops/operator.h"

namespace windrow::ir {

/// The index of a node in its list.
using Value = std::int32_t;
inline constexpr Value no_value = -1;
inline std::size_t at(Value value) { return static_cast<std::size_t>(value); }

enum class Code : std::uint8_t {
  parameter,  ///< Function::parameters[number]
  pull,       ///< `number` among the pulls
  given,      ///< a tensor given at run time: `number` counts the function's tensors, then the gradients of its outputs
  gather,     ///< state `number` of `child`; in programs: of all children side by side, or one row for each edge
  fill,       ///< `constant` everywhere
  apply,      ///< op, to `in` and the index pulls `indices`
  sum,        ///< zeros, with in[k] added from column at[k] on
  // Only in programs:
  scatter,   ///< hands in[0] to the consumers, as state `number`
  incoming,  ///< the gradient of the scattered state `number`: the sum of the gradients that the consumers send
  send,      ///< a sum, sent to the children as the gradient of the gathered state `number`
  gradient,  ///< a sum that is the gradient of parameter `number`
  // For states that stay where they were computed (see read_in_place()), these read columns of state `number` from
  // at[0] on:
  gather_dot,  ///< for each edge: the dot product of the state of `child` and in[0], a row of the vertex
  /// For each vertex: the sum of the states of `child`, each times in[0] of its edge. In inference also for each edge:
  /// the state times in[0] of its vertex.
  gather_weighted_sum,
  send_product,       ///< sends in[0], a factor of each edge, times in[1], a row of the vertex, to `child`
  incoming_products,  ///< the part of the gradient of the scattered state `number` that is sent as products
};

/// A number that is compared by its bits: 0 and -0 differ, and NaN equals itself. A value.
struct Constant {
  Constant(double number) : value(number) {}
  operator double() const { return value; }
  friend bool operator==(const Constant& a, const Constant& b) {
    return std::bit_cast<std::uint64_t>(a.value) == std::bit_cast<std::uint64_t>(b.value);
  }

  double value;
};

struct Node {
  Code code;
  Type type;
  int vertex_type = -1;  ///< in programs: the vertex type that has this value; -1 for counted rows
  std::size_t number = 0;
  Index child = -1;
  Constant constant = 0;
  const Operator* op = nullptr;
  std::vector<Value> in = {};
  std::vector<std::size_t> indices = {};
  std::vector<Index> at = {};
  Attributes attributes = {};

  bool is_sum() const { return code == Code::sum || code == Code::send || code == Code::gradient; }
  bool is(const Operator& which) const { return code == Code::apply && op == &which; }
  /// Whether its rows belong to vertices or edges; then it has a vertex type.
  bool of_vertices() const { return !type.rows.counted(); }
  bool reads_in_place() const { return code == Code::gather_dot || code == Code::gather_weighted_sum; }
  bool of_edges() const { return type.rows == Rows::edges(); }
  bool is_output_gradient(const struct Function& function) const;
  bool zero() const { return code == Code::fill && constant == Constant(0); }
  /// Whether it is a range of columns of another value. Such a node needs no step and no storage.
  bool is_view() const { return is(op::slice) && of_vertices(); }
  friend bool operator==(const Node&, const Node&) = default;
};

struct Field {
  std::string name;
  Index width;
  Rows rows;  ///< of vertices or edges
  /// input: values of the graph. share_of_child: 1 / (number of children of the vertex), or 0 without children.
  enum class Holds : std::uint8_t { input, share_of_child } holds = Holds::input;
};
struct IndexField {
  std::string name;
  Index width;
  Rows rows;
  bool optional = false;  ///< a row may be -1; see Presence
  /// Whether vertex types tell if a vertex has the index.
  bool has_type_bit() const { return optional && rows == Rows::vertices(); }
  /// What a row contains:
  ///   input         values of the graph
  ///   edges         of a vertex: its first edge, and the end of its edges
  ///   consumer      of an edge: the row of its consumer
  ///   sibling       of an edge: the row of its consumer, and the edge's number among the edges of that consumer
  ///   row           of a vertex: its row of tensor `tensor`
  ///   gradient_row  of a vertex: its row of the gradient of output `tensor`
  ///   dropout       of a vertex: the minibatch, the sample, the vertex, and the two halves of the seed of dropout
  ///   dropout_by_sample  the same, with -1 for all vertices
  enum class Holds : std::uint8_t {
    input,
    edges,
    consumer,
    sibling,
    row,
    gradient_row,
    dropout,
    dropout_by_sample,
  } holds = Holds::input;
  bool holds_dropout() const { return holds == Holds::dropout || holds == Holds::dropout_by_sample; }
  std::size_t tensor = 0;
};

/// The computation for vertices of one kind, as traced.
struct VertexKind {
  std::string name = {};
  std::size_t arity = 0;     ///< the most children that are gathered by number
  std::size_t per_edge = 0;  ///< children of an edge; 0 for a function of fixed arity
  std::vector<Node> nodes = {};
  std::vector<Value> scattered = {};  ///< by state; no_value if this kind does not scatter it
  std::vector<Value> pushes = {};     ///< by output; no_value if this kind does not push it
  std::vector<Value> losses = {};
  std::vector<std::size_t> pulls = {}, index_pulls = {};  ///< numbers of the pulls that this kind uses
  std::vector<IndexRange> index_ranges = {};              ///< for each of index_pulls: what all its users accept
  /// By state: a bit for each child that it is gathered from; see VertexType.
  std::vector<std::uint32_t> gathered = {};

  bool any_number() const { return per_edge > 0; }
  /// The number of bits of a vertex type that describe children.
  std::size_t child_bits() const { return arity + per_edge; }
};

/// Names a parameter of any set.
struct ParameterName {
  std::uint64_t set;  ///< the id of its Parameters
  std::size_t number;
  std::shared_ptr<const std::string> name;  ///< for errors: after that of the set, if the set has one
  friend bool operator==(const ParameterName& a, const ParameterName& b) {
    return a.set == b.set && a.number == b.number;
  }
};

/// A vertex function: of one kind after tracing, or of several kinds after with_kinds().
struct Function {
  std::string name;
  std::vector<ParameterName> parameters = {};  ///< used ones, in the order of their first use
  std::vector<Field> states, pulls, outputs;
  std::vector<Field> tensors;  ///< given to each call
  std::vector<IndexField> index_pulls;
  std::vector<VertexKind> kinds;
};

/// The signature with which the node applies its operator. `nodes` contains its operands.
Signature signature_of(const Function& function, const std::vector<Node>& nodes, const Node& node);

/// For files: the function without losses and everything that only losses need.
Function for_outputs(const Function& function);
/// For the end of an error: the names as ": 'a', 'b'", or nothing.
std::string listed(const std::vector<Field>& fields);
/// Makes a vertex function of one that was read from a file, with these parameters. `function` needs only the types of
/// constants; the others are filled in. Throws MisuseError for a function that no tracing makes, and for values of
/// extreme sizes.
VertexFunction vertex_function_of(Function function, const std::vector<Parameter>& parameters);

inline bool Node::is_output_gradient(const Function& function) const {
  return code == Code::given && number >= function.tensors.size();
}

/// Whether the operator computes a vertex from values of that vertex and from parameters only.
inline bool by_rows(const Operator& op) {
  return op.locality == Locality::elementwise || op.locality == Locality::rowwise;
}

/// The type of a vertex. The upper half is its kind. The lower half has a bit for each child that is gathered by number
/// and that the vertex has; for any arity, then a bit for each child of an edge, which is set if there are edges; then
/// a bit for each optional index that the vertex has.
using VertexType = std::uint64_t;
inline constexpr std::size_t type_bits = 32;
inline std::size_t kind_of(VertexType type) { return static_cast<std::size_t>(type >> type_bits); }
inline const VertexKind& kind_of(const Function& function, VertexType type) { return function.kinds[kind_of(type)]; }
inline bool has_child(VertexType type, std::size_t k) { return (type >> k & 1u) != 0; }
/// Whether the vertex has edges, which only vertices of any arity have.
inline bool has_edges(const VertexKind& kind, VertexType type) {
  return kind.any_number() && has_child(type, kind.arity);
}
inline bool has_index(const Function& function, VertexType type, std::size_t pull) {
  if (!function.index_pulls[pull].has_type_bit()) return true;
  const VertexKind& kind = kind_of(function, type);
  std::size_t bit = kind.child_bits();
  for (std::size_t other : kind.index_pulls) {
    if (other == pull) break;
    bit += function.index_pulls[other].has_type_bit() ? 1 : 0;
  }
  return (type >> bit & 1u) != 0;
}
/// The type with all children that are gathered by number.
inline VertexType with_all_children(const Function& function, VertexType type) {
  return type | ((VertexType{1} << kind_of(function, type).arity) - 1);
}
/// The type with all children and all optional indices.
inline VertexType general(const Function& function, VertexType type) {
  const VertexKind& kind = kind_of(function, type);
  std::size_t bit = kind.child_bits();
  for (std::size_t pull : kind.index_pulls) {
    if (function.index_pulls[pull].has_type_bit()) type |= VertexType{1} << bit++;
  }
  return with_all_children(function, type);
}
/// A bit for each child that the type has.
inline std::uint32_t children(const Function& function, VertexType type) {
  const std::size_t bits = kind_of(function, type).child_bits();
  return static_cast<std::uint32_t>(type & ((VertexType{1} << bits) - 1));
}

}  // namespace windrow::ir
