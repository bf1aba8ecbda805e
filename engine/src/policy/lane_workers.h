// The policy `per_device`: each lane has threads of its own; the host lane has one more, which runs only urgent ops.
#pragma once

#include <map>
#include <optional>

#include "policy/by_priority.h"
#include "policy/op_queue.h"
#include "policy/workers.h"

namespace windrow {

class LaneWorkers;
class UrgentWorkers;

/// The state of one thread of a lane; see Workers.
struct LaneWorker {
  LaneWorker(LaneWorkers& of, Port&);

  OpQueue::Taker taker;
  Takes takes;
};

/// The threads of one lane. They take from a queue without locks. Ops that have a priority, and ops that a wait has
/// looked through, are in queues under a mutex.
class LaneWorkers final : public Workers<LaneWorkers, LaneWorker> {
 public:
  LaneWorkers(const RunningPolicy& policy, const PolicyContext& of, PolicyCounts& counts, const HostLane& lane)
      : Workers(policy, of, counts, lane.threads, "lane '" + lane.name + "'"), by_priority_(counts) {}
  ~LaneWorkers() override { stop(); }

  void add(OpRecord& op) noexcept;
  std::uint64_t ready() const;
  OpRecord* take_wanted(const Wanted& wanted) override;
  OpRecord* take_wanted_anywhere(const Wanted& wanted);  ///< see RunningPolicy

  void each_mutex(EachMutex f);
  void forget_threads(Copied copied) noexcept WINDROW_UNCHECKED_LOCKING;

  // ---- for Workers ----
  static constexpr bool all_may_wait = false;
  OpRecord* next(LaneWorker& worker) {
    return by_priority_.take(worker.takes, [&](bool) { return take_plain(worker); });
  }
  OpRecord* look_around(LaneWorker& worker, bool closely);
  bool work_in_sight() const {
    return by_priority_.any() || listed_count_.load(std::memory_order_seq_cst) > 0 || queue_.size() > 0;
  }

 private:
  friend struct LaneWorker;
  friend class LaneCrew;

  /// Takes an op without priority.
  OpRecord* take_plain(LaneWorker& worker) {
    if (listed_count_.load(std::memory_order_relaxed) > 0) {
      if (OpRecord* const op = take_listed()) return op;
    }
    return queue_.take(worker.taker);
  }
  OpRecord* take_listed() WINDROW_EXCLUDES(listed_mutex_);
  OpRecord* take_listed(const Wanted& wanted, ReadyQueue::Search search) WINDROW_EXCLUDES(listed_mutex_);
  void list(OpRecord& op) WINDROW_REQUIRES(listed_mutex_);

  ByPriority by_priority_;
  OpQueue queue_;

  /// Ops for which the queue had no memory, and ops that a wait moved out of the queue to look through them.
  Mutex listed_mutex_;
  PriorityQueue listed_ WINDROW_GUARDED_BY(listed_mutex_);
  std::atomic<int> listed_count_{0};  // written under listed_mutex_
};

struct UrgentWorker {
  UrgentWorker(UrgentWorkers&, Port&) {}
};

/// One more thread for the urgent ops of a lane.
class UrgentWorkers final : public Workers<UrgentWorkers, UrgentWorker> {
 public:
  UrgentWorkers(const RunningPolicy& policy, const PolicyContext& of, PolicyCounts& counts, ByPriority& from)
      : Workers(policy, of, counts, 1, "the thread for urgent ops"), from_(from) {}
  ~UrgentWorkers() override { stop(); }

  OpRecord* take_wanted(const Wanted&) override { return nullptr; }

  // ---- for Workers ----
  static constexpr bool all_may_wait = true;  // the lane's other threads also take urgent ops
  OpRecord* next(UrgentWorker&) { return from_.any_urgent() ? from_.take_urgent() : nullptr; }
  OpRecord* look_around(UrgentWorker& worker, bool) { return next(worker); }
  bool work_in_sight() const { return from_.any_urgent(); }

 private:
  ByPriority& from_;
};

/// All threads of one lane.
class LaneCrew {
 public:
  LaneCrew(const RunningPolicy& policy, const PolicyContext& of, const LaneState& lane);

  void start() { workers_.start(); }
  void add(OpRecord& op) noexcept;
  void stop();
  int spares() const { return workers_.spares() + (urgent_ ? urgent_->spares() : 0); }
  LaneWorkers& workers() { return workers_; }
  const LaneWorkers& workers() const { return workers_; }

  void each_mutex(EachMutex f);
  void forget_threads(Copied copied) noexcept WINDROW_UNCHECKED_LOCKING;

 private:
  PolicyCounts counts_, urgent_counts_;
  LaneWorkers workers_;
  std::optional<UrgentWorkers> urgent_;  // only on the host lane; destroyed first, since it takes from workers_
};

class PerDevice final : public RunningPolicy {
 public:
  explicit PerDevice(PolicyContext of) : context_(std::move(of)) {}

  void start(LaneState& lane) override WINDROW_EXCLUDES(mutex_);
  void add(OpRecord& op) noexcept override { op.info().lane->crew->add(op); }
  void stop() override;
  bool on_worker() const override { return LaneWorkers::on_thread_of(*this) || UrgentWorkers::on_thread_of(*this); }
  OpRecord* take_wanted_anywhere(const Wanted& wanted) override;
  int spares() const override WINDROW_EXCLUDES(mutex_);
  std::uint64_t ready() const override WINDROW_EXCLUDES(mutex_);
  void each_mutex(EachMutex f) override WINDROW_UNCHECKED_LOCKING;
  void forget_threads(Copied copied) noexcept override WINDROW_UNCHECKED_LOCKING;

 private:
  /// The crew of the first lane with a number of at least `lane`, which is set to that number; null if there is none.
  LaneCrew* crew_from(std::uint32_t& lane) WINDROW_EXCLUDES(mutex_);

  const PolicyContext context_;
  mutable Mutex mutex_;
  std::map<std::uint32_t, LaneCrew> crews_ WINDROW_GUARDED_BY(mutex_);  // by lane; never shrinks
};

}  // namespace windrow
