// The small interface behind which ops are given to threads.
#pragma once

#include <atomic>
#include <memory>

#include "core/ports.h"
#include "lane/lanes.h"
#include "policy/slots.h"

namespace windrow {

/// What the engine looks at with each op that has finished.
struct PolicyCounts {
  std::atomic<int> urgent{0};  ///< ready ops of positive priority
  std::atomic<int> awake{0};   ///< threads that run ops
  int most_awake = 0;          ///< how many should; fixed before the first op

  bool want_thread_back() const {
    return urgent.load(std::memory_order_relaxed) > 0 || awake.load(std::memory_order_relaxed) > most_awake;
  }
};

/// Decides where and when ready ops run. Members may be called by any thread, add() also by threads that run ops.
class RunningPolicy {
 public:
  virtual ~RunningPolicy() = default;
  /// Before the first op, and for each lane added later before its first op. Throws Error if no thread can be started.
  /// Again for the same lane is fine.
  virtual void start(LaneState& lane) = 0;
  /// Before the first op that others complete: ops may become ready on threads that must not run them. Throws as start.
  virtual void expect_callbacks() {}
  /// Needs no memory: an op that is ready cannot be lost.
  virtual void add(OpRecord& op) noexcept = 0;
  /// The calling thread has added what it wanted to, or is about to wait: what was kept to be seen together with more
  /// is seen now.
  virtual void hand_over() noexcept {}
  /// Around a push from outside the engine's ops; a policy that runs ops on the pushing thread does so in the second.
  virtual void before_push() {}
  virtual void after_push(Slots::Patience) {}
  virtual void stop() = 0;
  /// Whether this thread will call `out_of_work` when it has no op any more.
  virtual bool on_worker() const { return false; }

  /// Whether a thread that goes on by itself has to give up its core: for ops of positive priority, or since more run
  /// than may.
  bool wants_thread_back() const { return policy_counts_.want_thread_back(); }

  /// Whether there may be ready ops that no thread has taken up.
  virtual bool work_in_sight() const { return true; }

  /// For a thread whose op waits: a ready op, wherever it is, to be run on that thread; null if there is none.
  virtual OpRecord* take_wanted_anywhere(const Wanted& wanted) = 0;

  virtual int spares() const = 0;
  /// About how many ops are ready and not yet taken up.
  virtual std::uint64_t ready() const = 0;
  virtual std::vector<OpId> schedule_log() const { return {}; }
  virtual bool replay_diverged() const { return false; }

  // ---- fork; see fork.h ----
  virtual void each_mutex(EachMutex f) = 0;
  /// In a forked child, the mutexes being held: the threads do not exist, and nothing is ready. A whole policy starts
  /// new ones; a torn one runs nothing any more, and a thread of it that comes back from its op ends.
  virtual void forget_threads(Copied copied) noexcept = 0;

  /// A thread has gone on by itself for as long as it may: others come first now.
  virtual void end_row() {}

 protected:
  PolicyCounts policy_counts_;  ///< of a policy on whose threads ops go on by themselves
};

/// What a policy needs of its engine.
struct PolicyContext {
  const EngineOptions& options;
  Ports& ports;
  RunOp run;
  /// To be called by threads that answer on_worker() with yes, when they have finished all they could find.
  std::function<void()> out_of_work;
};

/// For each thread of a policy, before its first op: calls EngineOptions::on_thread_start, if there is one. Logs what
/// it throws.
void call_start_hook(const std::function<void()>& on_thread_start) noexcept;

std::unique_ptr<RunningPolicy> make_policy(PolicyContext context);

}  // namespace windrow
