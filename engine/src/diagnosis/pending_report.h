// What is pending, for people: what each op waits for, and who holds that.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnosis/pending_queues.h"

namespace windrow {

/// Of the ops of one engine.
class PendingReport {
 public:
  explicit PendingReport(std::vector<PendingOp> seen);

  /// A line for each op, those first that wait for no other. At most so many are told of.
  std::string text(std::size_t most = 10) const;

 private:
  /// A place at a variable that is not granted, and the op that holds the variable.
  struct Block {
    VarState* var = nullptr;
    std::size_t holder = PendingQueues::nobody;
  };

  /// What the op does, and with_holders what those do who keep it from doing more.
  enum class Depth { alone, with_holders };
  std::string state(std::size_t op, Depth depth) const;
  std::string waits_for(const Block& block, Depth depth) const;
  std::string waits_inside(std::size_t op, Depth depth) const;

  const PendingQueues queues_;
  std::vector<Block> blocks_;  // by op: one of its places that are not granted; empty if all are
};

}  // namespace windrow
