// The sections of a push: the one in which a thread may make and enter records, and the one around the whole push.
#pragma once

#include <exception>
#include <optional>

#include "core/core.h"
#include "record/running.h"
#include "windrow/engine/internal/engine_use.h"

namespace windrow {

/// The section in which a thread may make and enter records. No user code runs in it, except move constructors of
/// functions.
///
/// While a single thread enters records, variables need no lock bits, only the turnstile of that thread's port. When a
/// second thread comes, it closes the turnstile for a moment, and switches both threads to lock bits.
class Entry {
 public:
  explicit Entry(Core& core) : Entry(core.front, core.front.ports.mine()) {}
  /// The port is the calling thread's.
  [[gnu::always_inline]] Entry(Front& front, Port& port) : port_(port), before_(port.busy) {
    if (before_ == Port::Busy::entering) [[unlikely]]
      refuse_reentry();
    if (front.lone_.load(std::memory_order_relaxed) != &port_) front.join_others(port_);
    port_.entry.enter();
    port_.busy = Port::Busy::entering;
    joiners_ = front.several_.load(std::memory_order_acquire) ? Dep::Joiners::many : Dep::Joiners::one;
  }
  ~Entry() {
    port_.busy = before_;
    port_.entry.leave();
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  Port& port() const { return port_; }
  Dep::Joiners joiners() const { return joiners_; }

 private:
  [[noreturn]] static void refuse_reentry() {
    throw MisuseError("a push by the move constructor of a function that is being pushed");
  }

  Port& port_;
  const Port::Busy before_;
  Dep::Joiners joiners_;
};

template <class Place, class TakeBack>
void Front::enter_each(std::span<OpRecord* const> ops, const OpInfo& about, const Entry& entry, ReadyList& ready,
                       Place&& place, TakeBack&& take_back) {
  Port& port = entry.port();
  const auto granted = [&](OpRecord& op) { ready.push(op); };
  const auto drop = [&](OpRecord& ended) { records.free(port.records, &ended); };
  const auto fence = [&](Dep::Var& var) -> OpRecord& { return make_fence(port, var); };
  try {
    if (Dep::join_each(ops, entry.joiners(), place, granted, drop, fence)) return;
  } catch (...) {  // no memory for a fence
    take_back();
    for (OpRecord* op : ops) records.free(port.records, op);
    throw;
  }
  take_back();
  refuse(about, ops, entry);
}

/// For a policy that runs ops on the pushing thread: announces the push, and runs the ready ops at its end. Counts as a
/// visitor, since an op that runs may hold, and drop, the last owner of the engine.
class PushScope {
 public:
  explicit PushScope(Front& front)
      : core_(front.callers_run_ && !front.core_.frame_of_mine() ? &front.core_ : nullptr) {
    if (core_ != nullptr) [[unlikely]]
      begin(*core_);
  }
  /// Throws what ends the wait for a turn; see LookWhileWaiting.
  ~PushScope() noexcept(false) {
    if (core_ != nullptr) [[unlikely]]
      end(*core_);
  }
  PushScope(const PushScope&) = delete;
  PushScope& operator=(const PushScope&) = delete;

 private:
  // Static, so that the compiler need not keep the object in memory.
  [[gnu::noinline]] static void begin(Core& core) {
    ++core.life.visitors;
    core.back.policy->before_push();
  }
  [[gnu::noinline]] static void end(Core& core) {
    // Inside an op of another serial engine, waiting for a turn here could complete a cycle of turns.
    const bool nested = Running::innermost() != nullptr;
    std::optional<LookWhileWaiting> no_look;  // a second exception would end the program
    if (std::uncaught_exceptions() > 0) no_look.emplace();
    try {
      core.back.policy->after_push(nested ? Slots::Patience::give_up_if_taken : Slots::Patience::wait_for_turn);
    } catch (...) {
      --core.life.visitors;
      throw;
    }
    --core.life.visitors;
  }

  Core* const core_;
};

/// Held by a thread that does not belong to the engine while it finishes an op, so that shutdown waits for it. The
/// thread may never call the engine again, so the ops that it made ready are handed over at the end.
class Visit {
 public:
  explicit Visit(Core& core) : core_(core) { ++core_.life.visitors; }
  ~Visit() {
    core_.front.ports.hand_over();
    if (Port* const port = core_.front.ports.mine_if_any(); port != nullptr && Running::innermost() == nullptr) {
      port->completes_ops = true;
    }
    --core_.life.visitors;
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  Core& core_;
};

}  // namespace windrow
