// Captured ops, to be launched again and again: recorded once, with their dependencies worked out. A launch costs no
// more than pushing its ops, at any size and shape; one of many ops that depend on each other costs a fraction.
//
//   windrow::Graph step = engine.capture([&] {
//     engine.push([&] { y = f(x); }, {read(a), mutate(b)});
//     engine.push([&] { x = g(y); }, {read(b), mutate(a)});
//   });
//   for (int i = 0; i < 1000; ++i) step.launch();
//
// Contract
//   Order    A launch means what pushing its ops, in the order they were captured, would mean at that place. An op
//            starts when what it itself depends on is done, inside of the graph or outside, and lets go of each
//            variable when the graph's last op on it is done; so launches overlap where their variables allow it.
//   Errors   As with ops that are pushed, op by op. A launch of which a variable was retired throws MisuseError and
//            runs nothing.
//   Threads  Every member may be called from any thread, also from inside an op. Two launches may run one op of reads
//            only at the same time; its function must allow that.
//   Life     Functions and their captures live as long as a handle or a launch. After its engine is gone, launch(),
//            append() and dot() throw MisuseError.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <source_location>
#include <string>

namespace windrow {

struct GraphState;

/// A handle: copies name the same graph, and a default-made one names none. Made by Engine::capture.
class Graph {
 public:
  Graph() = default;
  explicit operator bool() const { return state_ != nullptr; }

  /// Inside of a capture the ops become part of what is captured. Throws MisuseError for an empty handle, a variable
  /// that was retired, or an engine that was shut down.
  void launch(std::source_location from = std::source_location::current()) const;

  /// Captures more ops behind those there are, which later launches run too. If `body` throws, nothing is added.
  void append(const std::function<void()>& body) const;

  /// Of ops.
  std::size_t size() const;

  /// In the language of Graphviz: ops, the dependencies among them, and the variables they meet the outside at.
  std::string dot() const;

 private:
  friend class Engine;
  GraphState& state() const;

  std::shared_ptr<GraphState> state_;
};

}  // namespace windrow
