// Finds waits inside ops that can never end. The process has one graph, since a cycle may span several engines.
//
// An edge means "cannot finish before". An op has edges to the conflicting ops that joined one of its variables
// earlier. An op that waits inside, without a time limit, also has edges to the ops for which its wait waits. An edge,
// once seen, holds until its target finishes. So if a walk starts at an unfinished op and returns to it, it has found a
// true deadlock, although engines are inspected one after the other and keep running: the last edge holds because its
// target is unfinished, hence the edge before it holds, and so on.
//
// Every wait without a limit is entered as long as it lasts, and searches at growing intervals, so every cycle is found
// (ring_search.h). If two waits complete a cycle at the same time, both may report it.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "process/fork.h"
#include "record/op.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

class Core;
class CoreLink;
class PendingQueues;
struct Running;

/// Identifies an op uniquely in the process for ever.
struct OpKey {
  std::uint32_t engine = 0;  ///< the engine's number
  OpId id = 0;
  friend auto operator<=>(const OpKey&, const OpKey&) = default;
};

/// A snapshot of an op, or a wait, that had not finished.
struct PendingOp {
  OpKey key;
  bool is_wait = false;
  OpRecord::Stage stage = OpRecord::Stage::queued;
  const OpInfo* info = nullptr;  ///< lives as long as the engine
  std::vector<VarPlace> places;
};

class WaitGraph {
 public:
  static WaitGraph& of_process();

  /// Between these calls, searches may inspect the engine's variables.
  void add_engine(Core& engine) WINDROW_EXCLUDES(mutex_);
  void remove_engine(Core& engine) WINDROW_EXCLUDES(mutex_);

  /// Notes that the ops that run on this thread above its floor wait inside, without a time limit, for all of these
  /// records of a wait.
  void enter(const Running* frames, const std::vector<OpKey>& wait) WINDROW_EXCLUDES(mutex_);
  void leave(const Running* frames, const std::vector<OpKey>& wait) noexcept WINDROW_EXCLUDES(mutex_);
  /// The records for which this op waits, including those already granted. Empty if the op does not wait, or waits with
  /// a time limit.
  std::vector<OpKey> wait_of(OpKey op) const WINDROW_EXCLUDES(mutex_);
  struct Ring {
    std::string text = {};  ///< describes the cycle; empty if none was found
    bool whole = true;      ///< whether the search was completed
  };
  /// Searches for a cycle through one of these ops, which must have entered, among at most `most` ops that wait for
  /// them. Keeps threads from pushing to the engines of these ops meanwhile.
  Ring find_ring(const Running* frames, std::size_t most) const WINDROW_EXCLUDES(mutex_);

  /// The ops, of all engines, that must finish before the wait can end. Each of them stays ahead of the wait until it
  /// has finished. Empty if no op of any engine is ready.
  std::set<OpKey> ahead_of(const std::vector<OpKey>& wait) const WINDROW_EXCLUDES(mutex_);
  /// The links of all engines.
  std::vector<std::shared_ptr<CoreLink>> links() const WINDROW_EXCLUDES(mutex_);
  /// Calls f(engine) if the engine with that number exists. It does not end during the call.
  void with_engine(std::uint32_t number, const std::function<void(Core&)>& f) const WINDROW_EXCLUDES(mutex_);

  /// An op that waits, or an op or a wait that is blocked by another one.
  struct Blocked {
    Core* core;
    OpRecord* op;
    friend bool operator==(const Blocked&, const Blocked&) = default;
  };
  using Waiters = std::multimap<OpKey, Blocked>;  ///< from the records of waits to the ops that wait

  // ---- fork; see fork.h ----
  void each_mutex(EachMutex f) { f(mutex_); }
  /// To be called in a forked child: the threads that waited do not exist, and unusable engines must not be inspected.
  void forget_threads() WINDROW_EXCLUDES(mutex_);

 private:
  /// Appends the ops that must finish before `op` can: the targets of its edges.
  void append_ahead(const PendingQueues& seen, std::size_t op, std::vector<std::size_t>& ahead) const
      WINDROW_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::set<Core*> engines_ WINDROW_GUARDED_BY(mutex_);
  std::multimap<OpKey, OpKey> waits_ WINDROW_GUARDED_BY(mutex_);  // from an op that waits to the records of its wait
  Waiters waiters_ WINDROW_GUARDED_BY(mutex_);                    // the reverse
};

}  // namespace windrow
