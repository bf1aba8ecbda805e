// Vertex functions: what one vertex of an input graph computes, written once for graphs of any shape. Start here.
//
//   windrow::VertexFunction cell("sum of the leaves", {.arity = 2}, [&](windrow::Vertex& v) {
//     const windrow::State total = v.state("total", 8);
//     const windrow::Expr own = embedding(table, v.pull_index("word", windrow::Presence::sometimes));
//     v.scatter(total, own + v.gather(0, total) + v.gather(1, total));
//     v.loss(softmax_cross_entropy(matmul(own, w), v.pull_index("label")));
//   });
//
// The four primitives are those of Cavs (Xu et al. 2018): gather the states of the children, scatter one's own state to
// the consumers, pull what the input holds for the vertex, push what the world shall see. The body is run once, when
// the function is made, and only records; a runner then computes all vertices of a minibatch that can be computed
// together as one batch.
//
// A function of any arity looks at its children all at once: `each` gives a value of each edge, and what is computed
// from it is one of each edge too, until it is reduced over the children:
//
//   v.scatter(total, own + sum_children(tanh(matmul(v.each(total), w))));
//
// Several functions can meet in a graph, such as those of an encoder and a decoder: one is put together of them, and
// GraphData::kinds says which one computes which vertex. They know each other's states by name.
//
// Contract
//   Types    What a vertex has no child for, or no index, is zero; and since which vertices those are is known before
//            anything runs, what is zero for that is not computed. So a leaf does no product of states.
//   Errors   Shapes that do not fit, a gather beyond the arity, a state that is scattered twice: MisuseError at the
//            trace, naming the function. A state that no kind scatters: the same when it is given to a graph or runner.
//   Threads  A vertex function is immutable. Traces of several functions are independent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "windrow/batching/expr.h"

namespace windrow {

namespace ir {
struct Function;
}

/// The arity of a function whose vertices may have any number of children.
inline constexpr std::size_t any_arity = static_cast<std::size_t>(-1);

/// Whether all vertices have an index, or some have -1 for none.
enum class Presence { always, sometimes };

/// Names a part of what a vertex hands to its consumers. A value, for the trace that made it.
class State {
 public:
  Index width() const { return width_; }

 private:
  friend class Vertex;
  State(std::weak_ptr<ir::Trace> trace, std::size_t number, Index width)
      : trace_(std::move(trace)), number_(number), width_(width) {}

  std::weak_ptr<ir::Trace> trace_;
  std::size_t number_;
  Index width_;
};

/// The vertex that the body of a vertex function is written for.
class Vertex {
 public:
  Vertex(const Vertex&) = delete;  // it ends with the trace
  Vertex& operator=(const Vertex&) = delete;

  /// Declares a part of the state.
  State state(const std::string& name, Index width);
  /// What child k scattered; zero if the vertex has no such child.
  Expr gather(std::size_t k, const State& state);
  /// What each child scattered: a value of each edge. For functions of any arity.
  Expr each(const State& state);
  /// Hands the value to all consumers. Once for each state; none where only other kinds of vertices have it.
  void scatter(const State& state, const Expr& value);

  /// The vertex's row of the graph's input of that name.
  Expr pull(const std::string& name, Index width);
  /// The same for int32. Operators refuse -1 as they refuse other indices out of range, but for those that give it a
  /// meaning; where presence is `sometimes`, it means that the vertex has none, and what an operator would compute from
  /// it is zero.
  IndexExpr pull_index(const std::string& name, Presence presence = Presence::always, Index width = 1);

  /// The vertex's row of a tensor that each call of the runner is given by that name, such as the output of another
  /// network; see Given. It has a gradient: Minibatch::gradient.
  Expr pull_row(const std::string& tensor, Index width);
  /// What the graph's edge inputs hold for each edge. For functions of any arity.
  Expr pull_edge(const std::string& name, Index width);
  IndexExpr pull_edge_index(const std::string& name, Index width = 1);

  /// The parameter as an expression, where something is computed from parameters alone: once for all vertices.
  Expr parameter(const Parameter& parameter);

  /// Makes the value an output of the minibatch.
  void push(const std::string& name, const Expr& value);
  /// Adds a term, of width 1, to what is minimised: the sum over all vertices.
  void loss(const Expr& value);

 private:
  friend class VertexFunction;
  explicit Vertex(std::shared_ptr<ir::Trace> trace) : trace_(std::move(trace)) {}
  void check_state(const char* what, const State& state) const;
  void check_any_arity(const std::string& what) const;
  Expr pull_rows(const std::string& name, const Type& type);
  IndexExpr pull_index_rows(const std::string& name, const Type& type, Presence presence);

  std::shared_ptr<ir::Trace> trace_;
};

/// A handle to what was traced.
class VertexFunction {
 public:
  struct Shape {
    /// The most children a vertex may have, or any_arity.
    std::size_t arity = 0;
  };
  VertexFunction(std::string name, Shape shape, const std::function<void(Vertex&)>& body);
  /// Of several kinds, each as one of those given computes it. What has one name in several of them, a state, an input
  /// or an output, is one. Throws MisuseError if there are none, one is of several kinds itself, or such a name has two
  /// widths.
  VertexFunction(std::string name, const std::vector<VertexFunction>& kinds);

  const std::string& name() const;
  std::size_t kinds() const;

 private:
  friend class InputGraph;
  friend class Runner;

  std::shared_ptr<const ir::Function> function_;
};

}  // namespace windrow
