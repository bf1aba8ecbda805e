// The policy `pool`: worker threads, each with a ring of ready ops, that take from each other's and from those of the
// threads that push.
//
// What a worker makes ready by its op it goes on with by itself (core/run.cc), so that a chain stays on its core; the
// pool sees the rest.
#pragma once

#include "core/ports.h"
#include "policy/by_priority.h"
#include "policy/running_policy.h"
#include "policy/workers.h"

namespace windrow {

class WorkerPool;

/// What a thread of the pool keeps; see Workers.
struct RingWorker {
  RingWorker(WorkerPool&, Port& mine) : port(&mine), from(&mine), from_closely(&mine) {}

  Port* port;
  Port* from;          ///< in whose ring it found ops the last time
  Port* from_closely;  ///< the same, when it looked closely
  Takes takes;
};

class WorkerPool final : public RunningPolicy, public Workers<WorkerPool, RingWorker> {
 public:
  explicit WorkerPool(const PolicyContext& of)
      : Workers(*this, of, policy_counts_, of.options.workers, "policy pool"), ports_(of.ports) {}
  ~WorkerPool() override { stop(); }

  void start(LaneState&) override { Workers::start(); }
  void add(OpRecord& op) noexcept override;
  void hand_over() noexcept override;
  void stop() override { Workers::stop(); }
  bool on_worker() const override { return on_thread_of(*this); }
  int spares() const override { return Workers::spares(); }
  std::uint64_t ready() const override;
  void end_row() override { ByPriority::turn_next(worker().takes); }
  OpRecord* take_wanted(const Wanted& wanted) override;
  OpRecord* take_wanted_anywhere(const Wanted& wanted) override;

  void each_mutex(EachMutex f) override;
  void forget_threads(Copied copied) noexcept override WINDROW_UNCHECKED_LOCKING { Workers::forget_threads(copied); }

  // ---- for Workers ----
  static constexpr bool all_may_wait = false;
  OpRecord* next(RingWorker& worker);
  OpRecord* look_around(RingWorker& worker, bool closely);
  bool work_in_sight() const override;

 private:
  /// Turned: from ring to ring, since each may never be empty.
  template <ReadyRing::Look look>
  OpRecord* take_from_rings(RingWorker& worker);

  Ports& ports_;
  ByPriority by_priority_{policy_counts_};  // and what rings have no memory for
  Mutex search_mutex_;               // taken before the others
};

}  // namespace windrow
