// A readable report of pending ops: what each op waits for, and which op holds it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnosis/pending_queues.h"

namespace windrow {

/// Reports the ops of one engine.
class PendingReport {
 public:
  explicit PendingReport(std::vector<PendingOp> seen);

  /// A line for each op, at most `most` of them. Ops that wait for no other op come first.
  std::string text(std::size_t most = 10) const;

 private:
  /// A place at a variable that is not granted, and the op that holds the variable.
  struct Obstacle {
    VarState* var = nullptr;
    std::size_t holder = PendingQueues::nobody;
  };

  /// `alone` describes what the op does; `with_holders` also describes the ops that keep it from continuing.
  enum class Depth { alone, with_holders };
  std::string state(std::size_t op, Depth depth) const;
  std::string waits_for(const Obstacle& block, Depth depth) const;
  std::string waits_inside(std::size_t op, Depth depth) const;

  const PendingQueues queues_;
  std::vector<Obstacle>
      blocks_;  // by op: one place that is not granted, or whose turn another op has; empty if there is none
};

}  // namespace windrow
