// Finds waits inside ops that can never end. One graph for the process, since a ring may run through several engines.
//
// Edges are "cannot finish before": from an op to those ahead of it in a queue that it conflicts with, and from an op
// that waits inside, without a time limit, to those its wait stands behind. Each edge, once seen, holds until its
// target finishes. So a walk that starts at an unfinished op and comes back to it has found a true deadlock, although
// it never stops an engine: the last edge holds because its target is unfinished, hence the one before it, and so on.
// The last edge of a ring is always a wait, and every wait without a limit looks, so every ring is found.
#pragma once

#include <compare>
#include <map>
#include <string>
#include <vector>

#include "mutex.h"
#include "op.h"

namespace windrow {

struct Running;

/// Names an op of the process for ever.
struct OpKey {
  const Core* core = nullptr;
  OpId id = 0;
  friend auto operator<=>(const OpKey&, const OpKey&) = default;
};

class WaitGraph {
 public:
  static WaitGraph& of_process();

  /// The ops that run on this thread wait, inside, through the record `wait`, which is in the queue of `var`.
  void enter(const Running* frames, VarState& var, OpId wait) WINDROW_EXCLUDES(mutex_);
  void leave(const Running* frames) WINDROW_EXCLUDES(mutex_);
  /// Describes a ring through one of the ops, which have entered; empty if there is none.
  std::string find_ring(const Running* frames) const WINDROW_EXCLUDES(mutex_);

 private:
  /// A place in a queue.
  struct Place {
    VarState* var;
    OpId op;
  };

  mutable Mutex mutex_;
  std::map<OpKey, Place> waits_ WINDROW_GUARDED_BY(mutex_);  // by the op that waits
};

}  // namespace windrow
