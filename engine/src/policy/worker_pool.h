// The policy `pool`: worker threads, each with a ring of ready ops. Workers also take from each other's rings and from
// the rings of pushing threads.
//
// A worker continues with an op that its own op made ready, without asking the pool (core/run.cc), so a chain stays on
// its core. The pool sees the other ready ops.
#pragma once

#include "core/ports.h"
#include "policy/by_priority.h"
#include "policy/running_policy.h"
#include "policy/workers.h"

namespace windrow {

class WorkerPool;

/// The state of one thread of the pool; see Workers.
struct RingWorker {
  RingWorker(WorkerPool&, Port& mine) : port(&mine), from(&mine), from_closely(&mine) {}

  Port* port;
  Port* from;          ///< the port in whose ring the thread last found ops
  Port* from_closely;  ///< the same for close looks
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
  /// A close look starts with the ring behind the last one, since a ring may never become empty.
  template <ReadyRing::Look look>
  OpRecord* take_from_rings(RingWorker& worker);

  Ports& ports_;
  ByPriority by_priority_{policy_counts_};  // also holds ops for which a ring has no memory
  Mutex search_mutex_;                      // taken before the other mutexes
};

}  // namespace windrow
