// The ops that had not finished at some moment, queued at their variables.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "wait/wait_graph.h"

namespace windrow {

/// A value. For each variable, it holds the places of the ops in the order of their joins.
class PendingQueues {
 public:
  struct Queued {
    std::size_t op;  ///< index into ops
    VarPlace place;
  };
  static constexpr std::size_t nobody = static_cast<std::size_t>(-1);

  explicit PendingQueues(std::vector<PendingOp> seen);

  /// The index of the op, or `nobody` if it was not seen.
  std::size_t find(const OpKey& key) const;

  /// Appends the ops that must finish before this one: at each of its variables, all ops that joined earlier; for a
  /// read or a commuting access, all up to the last access of another kind. Among commuting ops, the one that has its
  /// turn is ahead of the others. Waits are left out, since whatever holds a wait is listed itself.
  void append_ahead(std::size_t op, std::vector<std::size_t>& ahead) const;

  const std::vector<PendingOp> ops;
  std::unordered_map<VarState*, std::vector<Queued>> queues;

 private:
  std::map<OpKey, std::size_t> index_;
};

}  // namespace windrow
