// The actions of captures and launches of graphs in an engine.
#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <vector>

#include "graph/capture.h"
#include "graph/launch.h"
#include "wait/wait_graph.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

class Entry;

class Launches {
 public:
  explicit Launches(Core& core);
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  std::shared_ptr<GraphState> capture(const std::function<void()>& body, OpName name, std::source_location from);
  void append(GraphState& graph, const std::function<void()>& body, std::source_location from);
  void launch(GraphState& graph, std::source_location from);

  // ---- for the back ----
  void invoke_node(OpRecord& op, const FailurePtr& poison);
  /// Called when the gate's place at its variable is granted.
  void open_gate(OpRecord& gate, ReadyList& ready);
  /// Removes the op from its launch, and puts the successors that become ready into `ready`.
  void leave_node(OpRecord& op, ReadyList& ready);
  /// Makes launches that ended on this thread reusable. Destroys graphs without an owner, and their captures.
  void end_launches(Port& port, Slots* slots);

  Mutex mutex;
  GraphLaunch* first WINDROW_GUARDED_BY(mutex) = nullptr;  ///< of the launches under way

 private:
  void join_gates(GraphLaunch& launch, const OpInfo& about, const Entry& entry, ReadyList& ready);
  /// From this call on the launch's ops count as pushed.
  void number_nodes(GraphLaunch& launch, Port& port) WINDROW_EXCLUDES(mutex);
  void unlist(GraphLaunch& launch) WINDROW_EXCLUDES(mutex);
  /// Counts down the events that the gate awaits. The gate leaves after the last event.
  void leave_gate(GraphLaunch& launch, std::uint32_t index, ReadyList& ready);
  void begin_roots(GraphLaunch& launch);
  void end_part(GraphLaunch& launch);

  Core& core_;
  OpInfo end_of_graph_{.name = "the end of a graph"};  // fixed by the constructor
};

}  // namespace windrow
