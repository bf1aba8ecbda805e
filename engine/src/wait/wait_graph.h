// Finds waits inside ops that can never end. One graph for the process, since a ring may run through several engines.
//
// Edges are "cannot finish before": from an op to those that joined one of its variables earlier and that it conflicts
// with, and from an op that waits inside, without a time limit, to those its wait stands behind. Each edge, once seen,
// holds until its target finishes. So a walk that starts at an unfinished op and comes back to it has found a true
// deadlock, although engines are looked at one after the other and none stops running: the last edge holds because its
// target is unfinished, hence the one before it, and so on. The last edge of a ring is always a wait, and every wait
// without a limit looks, so every ring is found. (Of two waits that close a ring at one time both may report it.)
#pragma once

#include <compare>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/op.h"
#include "process/fork.h"
#include "windrow/engine/mutex.h"

namespace windrow {

class Core;
class PendingQueues;
struct Running;

/// Names an op of the process for ever.
struct OpKey {
  std::uint32_t engine = 0;  ///< its number
  OpId id = 0;
  friend auto operator<=>(const OpKey&, const OpKey&) = default;
};

/// What was seen of an op, or a wait, that had not finished.
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

  /// In between, the engine's variables may be looked at.
  void add_engine(Core& engine) WINDROW_EXCLUDES(mutex_);
  void remove_engine(Core& engine) WINDROW_EXCLUDES(mutex_);

  /// The ops that run on this thread, above its floor, wait inside through these records of a wait: for all of them.
  void enter(const Running* frames, const std::vector<OpKey>& wait) WINDROW_EXCLUDES(mutex_);
  void leave(const Running* frames) WINDROW_EXCLUDES(mutex_);
  /// The records through which this op waits, those that were granted too; none if it does not, or with a limit.
  std::vector<OpKey> wait_of(OpKey op) const WINDROW_EXCLUDES(mutex_);
  /// Describes a ring through one of the ops, which have entered; empty if there is none.
  std::string find_ring(const Running* frames) const WINDROW_EXCLUDES(mutex_);

  /// The engine's ops that must finish before that wait, of any engine, can end. Each of them, as long as it has not
  /// finished, is still ahead of the wait.
  std::set<OpId> ahead_of(const std::vector<OpKey>& wait, const Core& engine) const WINDROW_EXCLUDES(mutex_);

  // ---- fork; see fork.h ----
  void each_mutex(EachMutex f) { f(mutex_); }
  /// In a forked child: those that waited do not exist, and torn engines cannot be looked at.
  void forget_threads() WINDROW_EXCLUDES(mutex_);

 private:
  /// The ops that cannot finish after this one.
  void append_ahead(const PendingQueues& seen, std::size_t op, std::vector<std::size_t>& ahead) const
      WINDROW_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::set<Core*> engines_ WINDROW_GUARDED_BY(mutex_);
  std::multimap<OpKey, OpKey> waits_ WINDROW_GUARDED_BY(mutex_);  // the records, by the op that waits
};

}  // namespace windrow
