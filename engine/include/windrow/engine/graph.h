// Graphs: ops that are captured once, with their dependencies, and launched repeatedly. A launch of many ops that
// depend on each other costs a fraction of pushing them. A launch of a few ops, or of independent ops, costs more.
//
//   windrow::Graph step = engine.capture([&] {
//     engine.push([&] { y = f(x); }, {read(a), mutate(b)});
//     engine.push([&] { x = g(y); }, {read(b), mutate(a)});
//   });
//   for (int i = 0; i < 1000; ++i) step.launch();
//
// Contract
//   Order    A launch is equivalent to pushing its ops at that place in the order in which they were captured. Each op
//            starts when the ops that it depends on, inside and outside the graph, have finished; each variable is
//            released when the graph's last op on it has finished. So launches overlap where their variables permit.
//   Errors   As for pushed ops, op by op. A launch throws MisuseError and runs nothing if one of its variables was
//            retired, even by the graph's own first launch: see Engine::capture.
//   Threads  Every member may be called from any thread, also inside an op. An op that only reads may run in two
//            launches concurrently, which its function must allow.
//   Life     Functions and their captures live as long as a handle or a launch. After the engine is gone, launch(),
//            append() and dot() throw MisuseError.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <source_location>
#include <string>

namespace windrow {

struct GraphState;

/// A handle: copies name the same graph, and a default-constructed one names none. Created by Engine::capture.
class Graph {
 public:
  Graph() = default;
  explicit operator bool() const { return state_ != nullptr; }

  /// Launches the ops. Inside a capture, adds them to that capture instead. Throws MisuseError for an empty handle, a
  /// retired variable, or an engine that has shut down.
  void launch(std::source_location from = std::source_location::current()) const;

  /// Captures more ops after the existing ones; later launches run them too. If `body` throws, nothing is added. Throws
  /// MisuseError as Engine::capture does.
  void append(const std::function<void()>& body, std::source_location from = std::source_location::current()) const;

  /// The number of ops. Throws MisuseError for an empty handle.
  std::size_t size() const;

  /// The graph in the language of Graphviz: ops, dependencies among them, and the variables through which they depend
  /// on ops outside.
  std::string dot() const;

 private:
  friend class Engine;
  GraphState& state() const;

  std::shared_ptr<GraphState> state_;
};

}  // namespace windrow
