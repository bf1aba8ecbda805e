// The interface through which ready ops are given to threads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "lane/lanes.h"
#include "policy/slots.h"
#include "record/ports.h"

namespace windrow {

/// Slots of an engine for ops that threads of other engines run. Each such op takes the slot of a thread of this engine
/// that waits and has kept its slot. A wait inside the op frees no slot. Any thread may call the members.
class GuestSlots final : public Slots {
 public:
  /// During its lifetime, a thread that keeps its slot waits.
  class Offer {
   public:
    explicit Offer(GuestSlots& to) : to_(to) { ++to_.offered_; }
    ~Offer() { --to_.offered_; }
    Offer(const Offer&) = delete;
    Offer& operator=(const Offer&) = delete;

   private:
    GuestSlots& to_;
  };

  /// Returns false if no slot is offered.
  bool take() {
    if (offered_.fetch_sub(1) > 0) return true;
    ++offered_;
    return false;
  }
  void give_back() { ++offered_; }

  void block() override { throw Error("a wait inside an op would leave its engine without a thread"); }
  OpRecord* take_wanted(const Wanted&) override { return nullptr; }
  bool lacks_threads() const override { return false; }
  void unblock(Patience) override {}
  bool may_unblock_other() const override { return false; }
  void unblock_other() override {}

 private:
  std::atomic<int> offered_{0};  // negative while a thread continues although its slot is taken
};

/// Decides where and when ready ops run. Any thread may call the members; threads that run ops may call add(), too.
class RunningPolicy {
 public:
  virtual ~RunningPolicy() = default;
  /// Called before the first op, and for each lane added later before its first op. May be called again for the same
  /// lane. Throws Error if no thread can be started.
  virtual void start(LaneState& lane) = 0;
  /// Called before the first op that other threads complete. Then ops may become ready on threads that must not run
  /// them. Throws as start() does.
  virtual void expect_callbacks() {}
  /// Needs no memory, so a ready op cannot be lost.
  virtual void add(OpRecord& op) noexcept = 0;
  /// Called before and after a push from outside the engine's ops. A policy that runs ops on the pushing thread runs
  /// them in after_push().
  virtual void before_push() {}
  virtual void after_push(Slots::Patience) {}
  virtual void stop() = 0;
  /// Whether the calling thread will call `out_of_work` when it has no more ops.
  virtual bool on_worker() const { return false; }

  /// For a thread whose op waits, of this engine or another one: takes a wanted ready op, wherever it is, to run it on
  /// that thread; null if there is none. The thread must have a port of this engine.
  virtual OpRecord* take_wanted_anywhere(const Wanted& wanted) = 0;

  GuestSlots& guest_slots() { return guest_slots_; }

  virtual int spares() const = 0;
  /// The approximate number of ready ops that no thread has taken up.
  virtual std::uint64_t ready() const = 0;

  // ---- fork; see fork.h ----
  virtual void each_mutex(EachMutex f) = 0;
  /// Called in a forked child while the mutexes are held: the threads do not exist, and no op is ready. A whole policy
  /// starts new threads. An unusable one runs nothing, and a thread of it that returns from its op ends.
  virtual void forget_threads(Copied copied) noexcept = 0;

 private:
  GuestSlots guest_slots_;
};

/// What a policy needs from its engine.
struct PolicyContext {
  const EngineOptions& options;
  Ports& ports;
  RunOp run;
  /// Called by threads for which on_worker() is true, when they have finished all ops that they could find.
  std::function<void()> out_of_work;
};

/// Called by each thread of a policy before its first op: watches its exit, and calls EngineOptions::on_thread_start,
/// if it is set, and logs what it throws.
void call_start_hook(const std::function<void()>& on_thread_start) noexcept;

std::unique_ptr<RunningPolicy> make_policy(PolicyContext context);
std::unique_ptr<RunningPolicy> make_serial(PolicyContext context);

}  // namespace windrow
