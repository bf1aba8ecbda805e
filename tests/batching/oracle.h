// The oracle of the batching layer: runs a vertex function recursively, one vertex at a time, in double precision, with
// the reference kernels only. It shares only the names of the four primitives with batching/, so the body of a vertex
// function that is written as a generic lambda runs on both.
#pragma once

#include <concepts>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/ops/kernel.h"

namespace windrow::testing {

class Oracle;

/// A value of one vertex, of each of its edges, or of no vertex.
struct Row {
  const Oracle* oracle;
  Type type;
  std::vector<double> values;
  bool of_edges = false;
};
struct OracleIndex {
  const Oracle* oracle;
  std::vector<std::int32_t> values;
  bool absent;
  Index rows = 1;
  bool of_edges = false;
  bool may_lack = false;  ///< of edges: a row of -1 makes the row of the result zero
};
struct OracleState {
  std::string name;
  Index width;
};

class RowOperand {
 public:
  RowOperand(const Row& row) : row_(&row) {}
  RowOperand(const Parameter& parameter) : parameter_(&parameter) {}
  Row resolve(const Oracle& oracle) const;
  const Oracle* oracle() const { return row_ == nullptr ? nullptr : row_->oracle; }

 private:
  const Row* row_ = nullptr;
  const Parameter* parameter_ = nullptr;
};

/// The vertex as the body sees it.
class OracleVertex {
 public:
  OracleVertex(Oracle& oracle, const GraphData& graph, std::size_t vertex)
      : oracle_(oracle), graph_(graph), vertex_(vertex) {}
  std::size_t kind() const { return graph_.kinds.empty() ? 0 : static_cast<std::size_t>(graph_.kinds[vertex_]); }
  OracleState state(const std::string& name, Index width) { return {name, width}; }
  Row gather(std::size_t k, const OracleState& state);
  Row each(const OracleState& state, std::size_t k = 0);
  void scatter(const OracleState& state, const Row& value);
  Row pull(const std::string& name, Index width);
  OracleIndex pull_index(const std::string& name, Presence presence = Presence::always, Index width = 1);
  Row pull_edge(const std::string& name, Index width);
  OracleIndex pull_edge_index(const std::string& name, Presence presence = Presence::always, Index width = 1);
  Row constant(Index width, double value);
  Row zeros(Index width) { return constant(width, 0); }
  Row parameter(const Parameter& parameter);
  void push(const std::string& name, const Row& value);
  void loss(const Row& value);

 private:
  /// The indices in `children` of the first child of each edge of the vertex that exists.
  std::vector<std::size_t> edges() const;
  template <class T>
  std::vector<T> rows_of_edges(const std::vector<T>& all, Index width) const;

  Oracle& oracle_;
  const GraphData& graph_;
  std::size_t vertex_;
};

class Oracle {
 public:
  using Body = std::function<void(OracleVertex&)>;
  /// Uses the current values of the parameters. `shape` is the vertex function's; only its edges matter.
  Oracle(const Parameters& parameters, Body body, const VertexFunction::Shape& shape = {});

  /// Returns the sum of the losses. Stores the pushed values in `outputs`, vertex by vertex, with zeros where nothing
  /// was pushed.
  double loss(const std::vector<GraphData>& graphs);
  std::map<std::string, std::vector<double>> outputs;

  /// The gradient of the loss for every n-th element of a parameter, by element, from central differences.
  std::map<std::size_t, double> gradient(const Parameter& parameter, const std::vector<GraphData>& graphs,
                                         std::size_t n = 1);

 private:
  friend class OracleVertex;
  friend class RowOperand;
  void visit(const GraphData& graph, std::size_t vertex);

  const Parameters& parameters_;
  Body body_;
  const VertexFunction::Shape shape_;
  std::map<std::string, std::vector<double>> values_;
  std::map<std::size_t, std::map<std::string, Row>> states_;                  // of the current graph
  std::map<std::size_t, std::map<std::string, std::vector<double>>> pushed_;  // likewise
  double loss_ = 0;
};

Row apply(const Operator& op, std::initializer_list<RowOperand> in, std::initializer_list<OracleIndex> indices = {},
          const Attributes& attributes = {});
/// A column is used for all columns of the other operand, and a row that is not of an edge for all rows.
Row elementwise(const Operator& op, const RowOperand& x, const RowOperand& y);
Row operator+(const RowOperand& x, const RowOperand& y);
Row operator-(const RowOperand& x, const RowOperand& y);
Row operator*(const RowOperand& x, const RowOperand& y);
Row operator/(const RowOperand& x, const RowOperand& y);
Row maximum(const RowOperand& x, const RowOperand& y);
Row minimum(const RowOperand& x, const RowOperand& y);
Row operator*(double factor, const Row& x);
Row to_children(const Row& x, Index children);
Row sum_children(const Row& x);
Row mean_children(const Row& x);
Row max_children(const Row& x);
Row softmax_children(const Row& x);
inline Row tanh(const Row& x) { return apply(op::tanh, {x}); }
inline Row sigmoid(const Row& x) { return apply(op::sigmoid, {x}); }
inline Row relu(const Row& x) { return apply(op::relu, {x}); }
inline Row exp(const Row& x) { return apply(op::exp, {x}); }
inline Row square(const Row& x) { return apply(op::square, {x}); }
inline Row softmax(const Row& x) { return apply(op::softmax, {x}); }
inline Row row_sum(const Row& x) { return apply(op::row_sum, {x}); }
inline Row row_max(const Row& x) { return apply(op::row_max, {x}); }
inline Row pick(const Row& x, const OracleIndex& column) { return apply(op::pick, {x}, {column}); }
inline Row row_dot(const RowOperand& x, const RowOperand& y) { return apply(op::row_dot, {x, y}); }
/// Central differences see through it, so gradients agree only where what it stops cancels.
inline Row stop_gradient(const Row& x) { return x; }
inline Row matmul(const Row& x, const RowOperand& w) { return apply(op::matmul, {x, w}); }
inline Row matmul_nt(const Row& x, const RowOperand& w) { return apply(op::matmul_nt, {x, w}); }
template <std::same_as<Row>... Parts>
Row concat(const Parts&... parts) {
  return apply(op::concat, {parts...});
}
inline Row slice(const Row& x, Index begin, Index end) { return apply(op::slice, {x}, {}, op::columns(begin, end)); }
inline Row embedding(const RowOperand& table, const OracleIndex& row) { return apply(op::embedding, {table}, {row}); }
inline Row softmax_cross_entropy(const Row& logits, const OracleIndex& label) {
  return apply(op::softmax_cross_entropy, {logits}, {label});
}
/// As in inference.
inline Row dropout(const Row& x, const Dropout&) { return x; }
inline Row dropout(const Row& x, double) { return x; }
inline Row dropout(const Row& x, const OracleIndex& keys, double rate, std::uint64_t seed, std::uint32_t site) {
  return apply(op::dropout, {x}, {keys}, op::dropout_by(rate, seed, site));
}

}  // namespace windrow::testing
