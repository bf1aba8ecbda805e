// Vertex functions: what one vertex of an input graph computes, written once for graphs of any shape. Start here.
//
//   windrow::VertexFunction cell("sum of the leaves", {.arity = 2}, [&](windrow::Vertex& v) {
//     const windrow::State total = v.state("total", 8);
//     const windrow::Expr own = embedding(table, v.pull_index("word", windrow::Presence::sometimes));
//     v.scatter(total, own + v.gather(0, total) + v.gather(1, total));
//     v.loss(softmax_cross_entropy(matmul(own, w), v.pull_index("label")));
//   });
//
// The four primitives are those of Cavs (Xu et al. 2018): gather the states of the children, scatter a state to the
// consumers, pull inputs of the vertex, push outputs. The body runs once, when the function is made, and only records.
// A runner then computes, as one batch, all vertices of a minibatch that can be computed together.
//
// A function of any arity accesses all its children at once. `each` gives a value for each edge; values computed from
// it are values of edges too, until they are reduced over the children:
//
//   v.scatter(total, own + sum_children(tanh(matmul(v.each(total), w))));
//
// Its first children can be `fixed`: they are gathered by number, and the other children by `each`. For example, a step
// of a decoder can gather the previous step and attend to all words. An edge can lead to several children, such as the
// two parts of a span: see Shape.
//
// A graph can use several functions, such as an encoder and a decoder. They are combined into one function with several
// kinds; GraphData::kinds says which kind computes each vertex. States are matched by name.
//
// Leaves and inner vertices that compute different things have three forms:
//
//   One body      Missing children and missing indices (Presence::sometimes) are zeros, as in the example above. Use
//                 this form for formulas in which zeros are right, such as sums of products. See TreeLstm in
//                 windrow/models/tree_lstm.h. Leaves cost as little as with a function of their own; see Types below.
//   Kinds         VertexFunction("tree", {leaf, inner}): a function each, and GraphData::kinds with 0 or 1 for each
//                 vertex. Use this form for different formulas, inputs, outputs or losses, where zeros would be wrong:
//                 a bias that a leaf must not have. Each kind pulls only its own inputs. Functions over children give
//                 zero for a leaf, so attention to children needs no kind of its own.
//   Two functions Each with a runner and graphs of its own; the second pulls outputs of the first by pull_row(). Use
//                 this form for parts that are trained or used separately, such as an encoder that several networks
//                 read. It costs a minibatch for each, and needs Runner::record() and backward() for gradients.
//
// Contract
//   Types    Values from missing children and missing indices are zero. Since it is known before the run which vertices
//            lack them, values that are zero for that reason are not computed. So a leaf computes no product with
//            states.
//   Errors   Shapes that do not fit, a gather beyond the arity, and a state that is scattered twice throw MisuseError
//            during tracing, naming the function. A state that no kind scatters throws MisuseError when a graph or
//            runner is made for the function.
//   Threads  A vertex function is immutable. Several functions may be traced concurrently.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "windrow/batching/expr.h"

namespace windrow {

class LazyWeight;
class Vertex;
class VertexFunction;
namespace lazy {
class CellInputs;
}
namespace ir {
struct Function;
const Function& function_of(const VertexFunction& function);
VertexFunction vertex_function_of(Function function, const std::vector<Parameter>& parameters);
}  // namespace ir

/// The arity of a function whose vertices may have any number of children.
inline constexpr std::size_t any_arity = static_cast<std::size_t>(-1);

/// A handle to a traced function.
class VertexFunction {
 public:
  struct Shape {
    /// The most children a vertex may have, or any_arity.
    std::size_t arity = 0;
    /// For any_arity: how many children precede the edges. They are gathered by number.
    std::size_t fixed = 0;
    /// For any_arity: how many children an edge leads to, at least 1. GraphData lists them one after the other.
    std::size_t per_edge = 1;
  };
  /// Traces `body`. Throws MisuseError if `body` is empty or misuses the Vertex, or if `fixed` or `per_edge` is used
  /// with a fixed arity. Also throws it if the arity (fixed + per_edge for any_arity) plus the number of optional
  /// indices exceeds 31.
  VertexFunction(std::string name, Shape shape, const std::function<void(Vertex&)>& body);
  /// Combines functions into one with several kinds. A state, input, tensor or output name that occurs in several kinds
  /// denotes the same thing. Throws MisuseError if there are no functions, if one has several kinds itself, or if one
  /// name has two shapes.
  VertexFunction(std::string name, const std::vector<VertexFunction>& kinds);

  const std::string& name() const;
  std::size_t kinds() const;

 private:
  friend class InputGraph;
  friend class Runner;
  friend const ir::Function& ir::function_of(const VertexFunction& function);
  friend VertexFunction ir::vertex_function_of(ir::Function function, const std::vector<Parameter>& parameters);
  explicit VertexFunction(std::shared_ptr<const ir::Function> function) : function_(std::move(function)) {}

  std::shared_ptr<const ir::Function> function_;
};

/// Whether all vertices (or edges) have an index, or some have -1 instead.
enum class Presence { always, sometimes };

/// Names a part of the state that a vertex hands to its consumers. A value, valid only while its function is traced.
class State {
 public:
  Index width() const { return width_; }

 private:
  friend class Vertex;
  State(std::weak_ptr<ir::Tracing> tracing, std::size_t number, Index width)
      : tracing_(std::move(tracing)), number_(number), width_(width) {}

  std::weak_ptr<ir::Tracing> tracing_;
  std::size_t number_;
  Index width_;
};

/// The argument of the body of a vertex function. All members throw MisuseError, naming the function, for misuse.
class Vertex {
 public:
  Vertex(const Vertex&) = delete;  // valid only while its function is traced
  Vertex& operator=(const Vertex&) = delete;

  /// Declares a part of the state. Use each name once.
  State state(const std::string& name, Index width);
  /// The state that child k scattered; zero if the vertex has no such child. k is less than the arity, or than
  /// Shape::fixed in a function of any arity.
  Expr gather(std::size_t k, const State& state);
  /// The state that each child scattered, or child k of each edge: a value of edges. For functions of any arity.
  Expr each(const State& state, std::size_t k = 0);
  /// Hands the value to all consumers. Call it once for each state; not for states that only other kinds scatter.
  void scatter(const State& state, const Expr& value);

  /// The vertex's row of the graph's input of that name (GraphData::values). Use each name once.
  Expr pull(const std::string& name, Index width);
  /// The vertex's int32 row of GraphData::indices. Operators reject -1 like any other index out of range, unless they
  /// define a meaning for it. With Presence::sometimes, which needs width 1, -1 means that the vertex has no index;
  /// values that operators compute from it are zero.
  IndexExpr pull_index(const std::string& name, Presence presence = Presence::always, Index width = 1);

  /// The vertex's row of a tensor that is passed to each call of the runner, such as the output of another network; see
  /// Given. Its gradient is Minibatch::gradient.
  Expr pull_row(const std::string& tensor, Index width);
  /// The row of an edge input, for each edge. For functions of any arity.
  Expr pull_edge(const std::string& name, Index width);
  IndexExpr pull_edge_index(const std::string& name, Presence presence = Presence::always, Index width = 1);

  /// A row of equal numbers, for each vertex. Results that are known to be zero are not computed. Throws MisuseError
  /// for a finite number beyond the range of a float.
  Expr constant(Index width, double value);
  Expr zeros(Index width) { return constant(width, 0); }
  /// A parameter or a function of parameters (lazy_weight.h) as an expression. Operators on parameters alone are
  /// computed once for all vertices.
  Expr parameter(const Parameter& parameter);
  Expr parameter(const LazyWeight& weight);

  /// Makes the value an output of the minibatch. Use each name once.
  void push(const std::string& name, const Expr& value);
  /// Adds a term of width 1 to the loss, which is the sum over all vertices.
  void loss(const Expr& value);

 private:
  friend class VertexFunction;
  friend class lazy::CellInputs;
  explicit Vertex(std::shared_ptr<ir::Tracing> tracing) : tracing_(std::move(tracing)) {}
  void check_state(const char* what, const State& state) const;
  void check_any_arity(const std::string& what) const;
  Expr pull_rows(const std::string& name, const Type& type);
  IndexExpr pull_index_rows(const std::string& name, const Type& type, Presence presence);

  std::shared_ptr<ir::Tracing> tracing_;
};

}  // namespace windrow
