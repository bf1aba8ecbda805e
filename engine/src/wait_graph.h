// Finds waits inside ops that can never end.
//
// Edges are "cannot finish before": from an op to those ahead of it in a queue that it conflicts with, and from an op
// that waits inside to those its wait stands behind. Each edge, once seen, holds until its target finishes. So a walk
// that starts at an unfinished op and comes back to it has found a true deadlock, although it never stops the engine:
// the last edge holds because its target is unfinished, hence the one before it, and so on. The last edge of a ring is
// always a wait, and every wait inside an op looks, so every ring is found.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "mutex.h"
#include "op.h"

namespace windrow {

class WaitGraph {
 public:
  /// The op `waiting` waits, inside, through the queued record `wait`.
  void enter(const OpRecord& waiting, OpRecord& wait) WINDROW_EXCLUDES(mutex_);
  void leave(const OpRecord& waiting) WINDROW_EXCLUDES(mutex_);
  /// Describes a ring through `waiting`, which has entered; empty if there is none.
  std::string find_ring(const OpRecord& waiting) const WINDROW_EXCLUDES(mutex_);

 private:
  /// What remains known of an op that may finish at any time.
  struct Node {
    OpId id = 0;
    std::string label;
    std::vector<Dep::Access> accesses;  // copies; only var and kind are used
  };
  static Node snapshot(OpRecord& op);
  /// The ops ahead of `node` that it conflicts with; none if it has finished.
  static std::vector<Node> blockers(const Node& node);

  mutable Mutex mutex_;
  std::unordered_map<OpId, Node> waits_ WINDROW_GUARDED_BY(mutex_);  // by the op that waits
};

}  // namespace windrow
