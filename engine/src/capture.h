// A graph's ops as they are recorded, and the thread that records them.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "graph_plan.h"
#include "ports.h"
#include "windrow/engine/graph.h"
#include "windrow/engine/mutex.h"

namespace windrow {

/// Behind Graph.
struct GraphState {
  GraphState(Core& engine, std::string_view called) : core(engine), name(called) {}

  std::shared_ptr<GraphPlan> plan_now() WINDROW_EXCLUDES(mutex) {
    MutexLock lock(mutex);
    return plan;
  }

  Core& core;
  const std::string_view name;  ///< lives as long as the process

  Mutex mutex;
  /// Null before the first capture has ended. Replaced by each append; launches under way keep theirs.
  std::shared_ptr<GraphPlan> plan WINDROW_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<const void>> owned WINDROW_GUARDED_BY(mutex);
};

/// While it lives, its thread's pushes to the engine are recorded. Used by that thread alone.
class Capture {
 public:
  /// Throws MisuseError if the thread captures already.
  Capture(Core& core, Port& port);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Accesses need not be canonical. Throws MisuseError for a variable that was retired before in this capture.
  void add(std::shared_ptr<CapturedOp> op);
  void add(GraphState& graph);
  void made(Var var) { made_.push_back(var); }

  /// Ends the capture: puts what was recorded behind what the graph has.
  void finish(GraphState& graph);

 private:
  /// Variables made and retired here belong to the graph.
  void take_over_variables();

  Core& core_;
  Port& port_;
  CapturedOps ops_;
  std::vector<CapturedOp*> recorded_;  // the rest are those of other graphs
  std::vector<Var> made_;
  std::unordered_set<const Dep::Var*> retired_;
  std::vector<std::shared_ptr<const void>> owned_;
};

}  // namespace windrow
