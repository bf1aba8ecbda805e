// Recording of a graph's ops, and the thread that records them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/plan.h"
#include "record/ports.h"
#include "record/running.h"
#include "windrow/engine/error.h"
#include "windrow/engine/graph.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

/// A reference to the engine that is valid as long as the engine exists. Threads: any.
class CoreLink {
 public:
  explicit CoreLink(Core& core) : core_(core) {}
  /// Calls f(engine) unless the engine has ended. The engine does not end during the call.
  template <class F>
  void use(F&& f) {
    ++users_;
    const Leaves leaves{users_};
    if (!ended_) f(core_);
  }
  bool ended() const { return ended_; }
  /// Called in a forked child: the threads of other users do not exist.
  void forget_users() { users_ = 0; }
  /// Returns when no thread uses the engine any more.
  void end() {
    ended_ = true;
    while (users_ != 0) std::this_thread::yield();
  }

 private:
  struct Leaves {
    std::atomic<int>& users;
    ~Leaves() { --users; }
  };

  Core& core_;
  // Sequentially consistent: a new user sees ended_, or end() sees that user.
  std::atomic<int> users_{0};
  std::atomic<bool> ended_{false};
};

/// The state behind Graph.
struct GraphState {
  GraphState(Core& engine, std::shared_ptr<CoreLink> to_it, OpName called)
      : core(engine), link(std::move(to_it)), name(called) {}
  /// Throws MisuseError if the engine is gone.
  Core& core_there() const {
    if (link->ended()) [[unlikely]]
      refuse();
    return core;
  }
  [[noreturn]] void refuse() const;

  std::shared_ptr<GraphPlan> plan_now() WINDROW_EXCLUDES(mutex) {
    MutexLock lock(mutex);
    return plan;
  }

  Core& core;
  const std::shared_ptr<CoreLink> link;
  const OpName name;

  Mutex mutex;
  /// Null until the first capture has ended. Each append replaces it; launches under way keep theirs.
  std::shared_ptr<GraphPlan> plan WINDROW_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<const void>> owned WINDROW_GUARDED_BY(mutex);
};

/// The state behind DeclaredOp. Immutable.
struct DeclaredState {
  DeclaredState() = default;
  /// Destroys the op, or leaves it to a later call of Front::take_dropped().
  ~DeclaredState();
  DeclaredState(const DeclaredState&) = delete;
  DeclaredState& operator=(const DeclaredState&) = delete;

  std::shared_ptr<CoreLink> core;
  std::uint32_t engine = 0;        ///< the engine's number
  std::shared_ptr<CapturedOp> op;  ///< pushed ops have plain pointers to it
  std::uint64_t bytes = 0;         ///< held by each push
};

/// For a thread in a PushRefusal.
[[noreturn]] void refuse_push(const Port& port, const OpInfo& about);

/// While a Capture exists, its thread's pushes to the engine are recorded. Used by that thread alone.
class Capture {
 public:
  /// Begins to record ops that come after those of the graph. Throws MisuseError if the thread captures already.
  Capture(GraphState& graph, Port& port, std::source_location from);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Accesses need not be canonical. Throws MisuseError for a variable that was retired before in this capture.
  void add(std::shared_ptr<CapturedOp> op);
  void add(GraphState& graph);
  /// Names the owner whose end caused the last recorded op, a retire; see EngineUse::retire().
  void last_is_of(const char* owner);
  void made(const Var& var);

  /// Ends the capture: appends the recorded ops to those of the graph.
  void finish();

 private:
  /// Makes the variables that were retired in this capture belong to the graph.
  void take_over_variables();

  void refuse_retired(const CapturedOp& op) const;

  GraphState& graph_;
  Core& core_;
  Port& port_;
  const std::source_location from_;
  CapturedOps ops_;
  CapturedOps recorded_;  // those of ops_ that do not come from other graphs
  std::unordered_map<const Dep::Var*, Var> made_;
  std::unordered_set<const Dep::Var*> retired_;
  std::vector<std::shared_ptr<const void>> owned_;
  bool finished_ = false;
  const OwnThreadOnly alone_;
};

}  // namespace windrow
