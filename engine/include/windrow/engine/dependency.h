// Who may run now: the per-variable queues of accesses and the per-op counters of what is still missing.
//
// This is the heart of the engine and knows nothing else of it: no thread, no callable, no error. It is a template on
// its atomics so that an interleaving checker compiles this very code.
//
// Protocol (after the append / release steps of MXNet's engine, with registration made atomic):
//   join   takes the lock bits of all the op's variables in address order, appends one access to each queue, lets go.
//          Two ops pushed by two threads over overlapping variables are therefore in the same order in every queue,
//          and no cycle can arise. An op with nothing missing is ready.
//   leave  unlinks the op's accesses one variable at a time and grants what has come to the front; an op whose last
//          missing grant this was is ready.
//   join_each enters ops of one access each, at one instant, but each leaves as soon as it can: for waits.
//   withdraw takes back an op of one access that has not been granted.
//
// Invariants of a queue, which hold whenever its lock bit is free:
//   1. The list holds the accesses of all unfinished ops on the variable, in the order they joined.
//   2. The granted accesses are a prefix: either one exclusive access, or the longest run of reads at the front.
//   3. An op's pending counter is the number of its accesses that are not granted.
//   4. After a retiring access nothing joins.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <thread>

#include "windrow/engine/var.h"

namespace windrow {

/// The atomics the engine ships with. A checker supplies a class of the same shape.
struct StdAtomics {
  template <class T>
  using Atomic = std::atomic<T>;
  /// Data guarded by a lock bit.
  template <class T>
  using Plain = T;

  /// Called while a lock bit is found taken, the `round`-th time in a row. Holders only link and
  /// unlink, so a long wait means that the holder lost its core: give ours away, then sleep.
  static void pause(int round) {
    if (round < 64) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else if (round < 128) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
};

/// One bit that guards one variable. Unlocking is a plain store, which is why waiters poll instead of queueing.
template <class Atomics>
class LockBit {
 public:
  void lock() {
    // acquire: pairs with the release in unlock() of the previous holder.
    for (int round = 0; held_.exchange(true, std::memory_order_acquire); ++round) Atomics::pause(round);
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  typename Atomics::template Atomic<bool> held_{false};
};

template <class Atomics>
struct Dependency {
  template <class T>
  using Atomic = typename Atomics::template Atomic<T>;
  template <class T>
  using Plain = typename Atomics::template Plain<T>;

  struct Op;
  class Var;

  /// One op's place in one variable's queue. Lives inside the op's record; guarded by the variable's lock bit, but for
  /// `op`, `var`, `kind` and `generation`, which are fixed before join.
  struct Access {
    Op* op = nullptr;
    Var* var = nullptr;
    std::uint32_t generation = 0;
    AccessKind kind = AccessKind::read;
    Plain<bool> granted{false};
    Plain<Access*> prev{nullptr};
    Plain<Access*> next{nullptr};

    bool exclusive() const { return kind != AccessKind::read; }
  };

  class Var {
   public:
    /// Held by join, leave and whoever looks at the queue. No user code runs under it.
    LockBit<Atomics> lock;
    Plain<Access*> head{nullptr};
    Plain<Access*> tail{nullptr};
    /// Counts the lives of this record, so that a handle from an earlier life is refused.
    Plain<std::uint32_t> generation{0};
    Plain<bool> retired{false};
  };

  /// The part of an op that dependency tracking touches. Immutable while joined, but for `pending`.
  struct Op {
    Op(Access* first, std::uint32_t count) : accesses_(first), count_(count) {}

    std::span<Access> accesses() { return {accesses_, count_}; }

    /// Grants still missing. Written by join, then counted down by whoever grants.
    Atomic<std::int32_t> pending{0};
    /// Set before join: this op ends its variables' lives.
    bool retires = false;
    /// Owner: whoever took `pending` to zero.
    Op* next_ready = nullptr;

   private:
    Access* accesses_;
    std::uint32_t count_;
  };

  enum class Join { ready, waiting, refused };

  /// Sorts by variable and merges repeats, as join demands. Returns how many remain.
  static std::size_t canonicalise(std::span<Access> accesses) {
    std::sort(accesses.begin(), accesses.end(), [](const Access& a, const Access& b) { return a.var < b.var; });
    std::size_t kept = 0;
    for (Access& access : accesses) {
      if (kept > 0 && accesses[kept - 1].var == access.var) {
        accesses[kept - 1].kind = stronger(accesses[kept - 1].kind, access.kind);
      } else {
        accesses[kept++] = access;
      }
    }
    return kept;
  }

  /// Enters the op, whose accesses are canonical, into all its queues at one instant. Refused, and entered nowhere, if
  /// one of its variables is retired. When `waiting` is returned, the op may already be running elsewhere or be gone.
  static Join join(Op& op) {
    const std::span<Access> accesses = op.accesses();
    for (Access& access : accesses) access.var->lock.lock();
    const bool stale = std::any_of(accesses.begin(), accesses.end(), is_stale);
    std::int32_t missing = 0;
    if (!stale) {
      for (Access& access : accesses) {
        if (!append(access)) ++missing;
        if (op.retires) access.var->retired = true;
      }
      // relaxed: nobody can reach the op before a lock bit below is released.
      op.pending.store(missing, std::memory_order_relaxed);
    }
    // The op cannot leave, and so its accesses cannot vanish, before the last of these bits is free.
    for (Access& access : accesses) access.var->lock.unlock();
    return stale ? Join::refused : missing == 0 ? Join::ready : Join::waiting;
  }

  /// Enters ops of one access each, on different variables and in address order, into their queues at one instant.
  /// `ready[i]` tells whether the i-th is; those that are not may already be gone. False, and none has entered, if one
  /// of the variables is retired.
  static bool join_each(std::span<Op* const> ops, std::span<bool> ready) {
    for (Op* op : ops) op->accesses().front().var->lock.lock();
    const bool stale = std::any_of(ops.begin(), ops.end(), [](Op* op) { return is_stale(op->accesses().front()); });
    if (stale) {
      for (Op* op : ops) op->accesses().front().var->lock.unlock();
      return false;
    }
    for (std::size_t i = 0; i < ops.size(); ++i) {
      Access& access = ops[i]->accesses().front();
      Var& var = *access.var;
      ready[i] = append(access);
      ops[i]->pending.store(ready[i] ? 0 : 1, std::memory_order_relaxed);
      var.lock.unlock();  // after all are locked, the first to be let go may be: nobody gets between two of the ops
    }
    return true;
  }

  /// Takes the finished op out of its queues. `visit(access)` is called once for each access, under its variable's lock
  /// bit; `ready(op)` once for each op that became ready, under none. The op is not touched after the last visit.
  template <class Visit, class Ready>
  static void leave(Op& op, Visit&& visit, Ready&& ready) {
    for (Access& access : op.accesses()) {
      Var& var = *access.var;
      var.lock.lock();
      visit(access);
      unlink(access);
      Op* released = grant_from(var.head);
      var.lock.unlock();
      report(released, ready);
    }
  }

  /// Takes out of the queue the op with this one access for which `match(op)` holds, if it still stands there without
  /// its grant; it is the caller's again. Else returns null: it was granted, or has left. `ready` as for leave.
  template <class Match, class Ready>
  static Op* withdraw(Var& var, Match&& match, Ready&& ready) {
    var.lock.lock();
    Access* access = var.tail;
    while (access != nullptr && !access->granted && !match(*access->op)) access = access->prev;
    Op* found = access != nullptr && !access->granted ? access->op : nullptr;
    Op* released = nullptr;
    if (found != nullptr) {
      unlink(*access);
      released = grant_from(access->next);
    }
    var.lock.unlock();
    report(released, ready);
    return found;
  }

 private:
  template <class Ready>
  static void report(Op* released, Ready&& ready) {
    while (released != nullptr) {
      Op* next = released->next_ready;
      ready(*released);
      released = next;
    }
  }

  static bool is_stale(const Access& access) {
    return access.var->retired || access.var->generation != access.generation;
  }

  static AccessKind stronger(AccessKind a, AccessKind b) { return a == b ? a : AccessKind::mutate; }

  /// Returns whether the access is granted at once.
  static bool append(Access& access) {
    Var& var = *access.var;
    Access* last = var.tail;
    access.prev = last;
    access.next = nullptr;
    access.granted = last == nullptr || (!access.exclusive() && last->granted && !last->exclusive());
    if (last != nullptr) {
      last->next = &access;
    } else {
      var.head = &access;
    }
    var.tail = &access;
    return access.granted;
  }

  static void unlink(Access& access) {
    Var& var = *access.var;
    Access* prev = access.prev;
    Access* next = access.next;
    if (prev != nullptr) {
      prev->next = next;
    } else {
      var.head = next;
    }
    if (next != nullptr) {
      next->prev = prev;
    } else {
      var.tail = prev;
    }
  }

  /// Restores invariant 2 after an unlink that may have opened the way for `front`, and for the reads behind it.
  /// Returns the ops that became ready, linked by next_ready.
  static Op* grant_from(Access* front) {
    if (front == nullptr || front->granted) return nullptr;
    const bool alone = front->exclusive();
    const Access* ahead = front->prev;
    if (ahead != nullptr && (alone || !ahead->granted || ahead->exclusive())) return nullptr;
    Op* first = nullptr;
    Op** end = &first;
    for (Access* access = front; access != nullptr && (access == front || (!alone && !access->exclusive()));
         access = access->next) {
      access->granted = true;
      Op& op = *access->op;
      // acq_rel: what every finished predecessor wrote is visible to whoever runs the op.
      if (op.pending.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        op.next_ready = nullptr;
        *end = &op;
        end = &op.next_ready;
      }
    }
    return first;
  }
};

}  // namespace windrow
