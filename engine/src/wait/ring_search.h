// Finds a cycle of waits by a walk from ops that wait to the ops that cannot go on before them.
//
// The walk follows what blocks an op now: it waits at a version of the op before it, behind that op's reads, for its
// turn, for its gate, or, as a wait, on behalf of the ops inside which a thread waits. So the walk meets only ops that
// are stuck behind its first ops, whatever else is pending. What it meets cannot run or leave meanwhile, and it keeps
// all threads from joining, in each engine that it enters. So it reads the links of ops without a lock.
//
// An op that is kept by several others may show one of them only, and an edge from another one appears later. In a true
// deadlock each op is blocked now by another one of it, so there is a cycle of such edges. Hence a search that is
// repeated finds every deadlock.
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
  /// Of a gate that is not granted. What a granted one has opened may have run and left.
  void visit_opened(OpRecord& gate, std::size_t step);
  void visit_behind_node(OpRecord& op, std::size_t step);
  void visit_behind_turns(OpRecord& op, std::size_t step);
  void visit_waiters(std::size_t step);
  std::string describe(std::size_t last) const;

  const WaitGraph::Waiters& waiters_;
  const std::size_t most_;
  /// In whatever order the search meets them. WaitGraph runs one search at a time, and nothing else stops two engines.
  std::map<Core*, Ports::Stopped> stopped_;
  std::vector<Visit> walk_;
  std::unordered_set<const OpRecord*> known_, mine_;
  std::size_t ring_ = nobody;  ///< the step that leads back to one of the first ops
};

}  // namespace windrow
