// Finds pairs of accesses to the same memory that nothing orders, in the manner of the CUDA sanitizer of PyTorch.
//
// Each task has a vector clock, which is known when the task is issued. An access conflicts with an earlier one if one
// of the two writes and the clock of the later task does not contain the earlier task. So a missing wait is found
// whatever the order is in which the work runs. A thread of the host that has seen a task done passes that on to all
// work that is issued from then on.
#pragma once

#include <map>

#include "cuda/plugin/team.h"
#include "streams.h"

namespace windrow::fake {

/// Members are called with the world's mutex.
class Checker {
 public:
  /// Notes the accesses of a task that has just been issued, and reports conflicts with earlier ones.
  void check(const TaskPtr& task, const std::vector<cuda::Access>& accesses);
  /// Memory was freed: its accesses are of no interest any more.
  void forget(const void* start, std::size_t bytes);

  const Clock& host_clock() const { return host_; }
  void host_knows(const Clock& clock) { host_.join(clock); }

 private:
  struct Noted {
    cuda::Access access;
    TaskPtr task;
  };
  /// Drops what all later work is after.
  void prune();

  Clock host_;
  std::multimap<std::uintptr_t, Noted> noted_;  // by the first address
  std::size_t longest_ = 0;                     // bytes from the first to the last address of an access
  std::size_t prune_at_ = 1024;
};

}  // namespace windrow::fake
