// Finds a cycle of waits by a walk from waiting ops to the ops that cannot continue before them.
//
// The walk follows what blocks an op now. An op waits at a version of an earlier op, for that op's reads, for its turn,
// or for its gate; a wait blocks the ops inside which a thread waits. So the walk meets only ops that are stuck behind
// its first ops, whatever else is pending. These cannot run or leave meanwhile, and the walk keeps all threads from
// joining in each engine that it enters. So it reads the links of ops without a lock.
//
// An op that is blocked by several others may show only one of these edges now, and another edge later. In a true
// deadlock each op is now blocked by another op of the deadlock, so there is a cycle of such edges. Hence a repeated
// search finds every deadlock.
#pragma once

#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "record/ports.h"
#include "wait/wait_graph.h"

namespace windrow {

/// One search. Used by one thread, during which no engine may end.
class RingSearch {
 public:
  /// `most` bounds the number of ops that the search visits.
  RingSearch(const WaitGraph::Waiters& waiters, std::size_t most);
  RingSearch(const RingSearch&) = delete;
  RingSearch& operator=(const RingSearch&) = delete;

  WaitGraph::Ring find(const Running* frames);

 private:
  static constexpr std::size_t nobody = static_cast<std::size_t>(-1);

  struct Visit {
    WaitGraph::Blocked at;
    std::size_t blocked_by;  ///< index of a step
    bool waits_inside;       ///< whether the op has begun, and so holds its turns
  };

  void visit(WaitGraph::Blocked at, std::size_t blocked_by, bool waits_inside);
  void visit_behind(std::size_t step);
  /// Visits the nodes of a gate that is not granted. (The nodes of a granted gate may have run and left.)
  void visit_opened(OpRecord& gate, std::size_t step);
  void visit_behind_node(OpRecord& op, std::size_t step);
  void visit_behind_turns(OpRecord& op, std::size_t step);
  void visit_waiters(std::size_t step);
  std::string describe(std::size_t last) const;

  const WaitGraph::Waiters& waiters_;
  const std::size_t most_;
  /// In the order in which the search meets them. That is safe: WaitGraph runs one search at a time, and nothing else
  /// stops two engines.
  std::map<Core*, Ports::Stopped> stopped_;
  std::vector<Visit> walk_;
  std::unordered_set<const OpRecord*> known_, mine_;
  std::size_t ring_ = nobody;  ///< the step that leads back to one of the first ops
};

}  // namespace windrow
