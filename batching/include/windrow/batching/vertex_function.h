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
// Contract
//   Types    What a vertex has no child for, or no index, is zero; and since which vertices those are is known before
//            anything runs, what is zero for that is not computed. So a leaf does no product of states.
//   Errors   Shapes that do not fit, a gather beyond the arity, a state that is never scattered: MisuseError at the
//            trace, naming the function.
//   Threads  A vertex function is immutable. Traces of several functions are independent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "windrow/batching/expr.h"

namespace windrow {

namespace ir {
struct Function;
}

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
  /// Hands the value to all consumers. Exactly once for each state.
  void scatter(const State& state, const Expr& value);

  /// The vertex's row of the graph's input of that name.
  Expr pull(const std::string& name, Index width);
  /// The same for int32. Operators refuse -1 as they refuse other indices out of range, but for those that give it a
  /// meaning; where presence is `sometimes`, it means that the vertex has none, and what an operator would compute from
  /// it is zero.
  IndexExpr pull_index(const std::string& name, Presence presence = Presence::always, Index width = 1);

  /// The parameter as an expression, where something is computed from parameters alone: once for all vertices.
  Expr parameter(const Parameter& parameter);

  /// Makes the value an output of the minibatch.
  void push(const std::string& name, const Expr& value);
  /// Adds a term, of width 1, to what is minimised: the sum over all vertices.
  void loss(const Expr& value);

 private:
  friend class VertexFunction;
  explicit Vertex(std::shared_ptr<ir::Trace> trace) : trace_(std::move(trace)) {}

  std::shared_ptr<ir::Trace> trace_;
};

/// A handle to what was traced.
class VertexFunction {
 public:
  struct Shape {
    /// The most children a vertex may have.
    std::size_t arity = 0;
  };
  VertexFunction(std::string name, Shape shape, const std::function<void(Vertex&)>& body);

  const std::string& name() const;
  std::size_t arity() const;

 private:
  friend class InputGraph;
  friend class Runner;

  std::shared_ptr<const ir::Function> function_;
};

}  // namespace windrow
