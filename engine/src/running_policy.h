// The small interface behind which ops are given to threads.
#pragma once

#include <memory>

#include "crew.h"
#include "lanes.h"

namespace windrow {

/// Decides where and when ready ops run. Members may be called by any thread, add() also by threads that run ops.
class RunningPolicy {
 public:
  virtual ~RunningPolicy() = default;
  /// Before the first op, and for each lane added later before its first op. Throws Error if no thread can be started.
  virtual void start(LaneState& lane) = 0;
  virtual void add(OpRecord& op) = 0;
  /// Around a push from outside the engine's ops; a policy that runs ops on the pushing thread does so in the second.
  virtual void before_push() {}
  virtual void after_push(Crew::Patience) {}
  virtual void stop() = 0;

  virtual int spares() const = 0;
  virtual std::vector<OpId> schedule_log() const { return {}; }
  virtual bool replay_diverged() const { return false; }
};

std::unique_ptr<RunningPolicy> make_policy(const EngineOptions& options, Crew::Run run);

}  // namespace windrow
