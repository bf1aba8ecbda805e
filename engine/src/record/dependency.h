// Decides which ops may run: each variable has a chain of versions, each op a count of the grants it still lacks.
//
// This is the heart of the engine. It knows no threads, no callables and no errors. It is a template on its atomics and
// on the record of an op: so an interleaving checker compiles the same code, and the engine extends the record.
//
// Each exclusive access makes a new version of its variable; versions.h shows the data of a version.
//
// Protocol
//   join   takes the lock bits of all the op's variables in address order, enters each access at its variable's last
//          version, and releases the lock bits. Ops that two threads push over overlapping variables are therefore in
//          the same order at each variable, so no cycle can arise. Only joins take lock bits. While a single thread
//          joins, no lock bit is needed.
//   leave  touches versions and no variable, so that ops that leave do not contend with ops that join. It closes the
//          versions that the op has made, counts the op's reads as left, and grants the accesses that this unblocks.
//   join_each enters several ops of one access each in one atomic step. Each of them leaves as soon as it can. Waits
//          use this.
//   Commuting accesses share a version, as reads do; their order is decided elsewhere (core/commuting.cc). A fence
//   separates them from reads. A fence is an op that does nothing and has one exclusive access.
//
// The chain is that of the queue locks of Mellor-Crummey and Scott (1991), except that an op enters the lists of many
// variables in one atomic step.
//
// Invariants, which hold between the steps above:
//   1. An exclusive access is granted when all accesses that joined before it have left. A read is granted when all
//      exclusive accesses that joined before it have left.
//   2. An op's pending counter is the number of its accesses that are not granted, plus one while it joins.
//   3. A version ends when its op and its reads have left and the next exclusive access has joined. That access is then
//      granted. An op's record lives until the op has left and all versions that it made have ended.
//   4. Nothing joins after a retiring access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <utility>

#include "record/versions.h"

namespace windrow {

/// `Atomics` and `Record` are as in Versions. Members may be called by any thread, under the conditions they state.
template <class Atomics, class Record>
struct Dependency : Versions<Atomics, Record> {
  using Versions = windrow::Versions<Atomics, Record>;
  using Access = typename Versions::Access;
  using Var = typename Versions::Var;
  using Op = typename Versions::Op;
  using Word = typename Versions::Word;

  enum class Join { ready, waiting, refused };
  using Joiners = typename Versions::Joiners;

  /// Enters the op at all its variables in one atomic step; `count` must be the argument of place(). If one of the
  /// variables is retired, returns `refused` and enters nothing. Otherwise calls `prepare()`, which must not throw,
  /// before any other thread can reach the op. When `waiting` is returned, the op may already run on another thread, or
  /// be gone. Calls `drop(op)` for each op whose record became free.
  ///
  /// `make_fence(var)` returns the record of an op that was placed with mutate access to that variable alone. If it
  /// throws, the op is not entered, and the exception passes to the caller. A fence becomes ready as any op does, and
  /// must then leave at once.
  template <class Count, class Prepare, class Drop, class MakeFence>
  [[gnu::always_inline]] static Join join(Record& op, Count count, Joiners joiners, Prepare&& prepare, Drop&& drop,
                                          MakeFence&& make_fence) {
    if (count == 1 || op.count() == 1) return join_one(op, joiners, prepare, drop, make_fence);
    return join_several(op, joiners, prepare, drop, make_fence);
  }

  /// Enters ops of one access each, sorted by the addresses of their variables, in one atomic step. Ops on one variable
  /// enter in the order given. For each op, calls `place(op, ticket)` with its place at the variable before any other
  /// thread can reach it, and `ready(op)` after it has entered, if it is granted. Returns false, and enters none, if
  /// one of the variables is retired. `drop` and `make_fence` are as for join.
  template <class Place, class Ready, class Drop, class MakeFence>
  static bool join_each(std::span<Record* const> ops, Joiners joiners, Place&& place, Ready&& ready, Drop&& drop,
                        MakeFence&& make_fence) {
    const auto var_of = [&](std::size_t i) { return &ops[i]->accesses().front().var(); };
    const bool many = joiners == Joiners::many;
    const auto is_last_there = [&](std::size_t i) { return i + 1 == ops.size() || var_of(i + 1) != var_of(i); };
    bool stale = false;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (many && (i == 0 || var_of(i - 1) != var_of(i))) var_of(i)->lock_.lock();
      stale |= is_stale(ops[i]->accesses().front());
    }
    try {
      for (std::size_t i = 0; i < ops.size() && !stale; ++i)
        if (i == 0 || var_of(i - 1) != var_of(i)) enter_fences(ops[i]->accesses(), drop, make_fence);
    } catch (...) {
      for (std::size_t i = 0; i < ops.size(); ++i)
        if (many && is_last_there(i)) var_of(i)->lock_.unlock();
      throw;
    }
    for (std::size_t i = 0; i < ops.size(); ++i) {
      Var& var = *var_of(i);
      const bool last = is_last_there(i);  // read now, since the op may be gone once it has entered
      if (!stale) {
        Access& access = ops[i]->accesses().front();
        if (!access.exclusive()) var.commuting_ = access.commutes();  // needed if it follows an exclusive one of `ops`
        place(*ops[i], static_cast<std::uint32_t>(var.tickets_));
        var.generation_ = var.generation_ + ops[i]->retires();
        if (enter(access, drop)) ready(*ops[i]);
      }
      if (many && last) var.lock_.unlock();  // the step stays atomic, since all were locked before the first unlock
    }
    return !stale;
  }

  /// Whether nothing has joined the variable after the place with this ticket.
  static bool is_last(Var& var, std::uint32_t ticket, Joiners joiners) {
    const auto held = hold(var, joiners);
    return var.tickets_ == ticket + 1;
  }

  /// Removes the finished op from its chains. Calls `visit(access)` once for each access while it is still granted.
  /// Calls `ready(op)` once for each op that became ready, and `drop(op)` once for each op whose record became free,
  /// possibly this one.
  template <class Visit, class Ready, class Drop>
  [[gnu::always_inline]] static void leave(Record& op, Visit&& visit, Ready&& ready, Drop&& drop) {
    if (op.count() != 1) return leave_several(op, visit, ready, drop);
    Access& access = op.accesses().front();
    visit(access);
    if (!access.exclusive()) {
      leave_read(access, ready, drop);
      drop(op);
    } else if (op.retires()) {
      drop(op);
    } else {
      leave_version(access, ready, drop);
    }
  }

  /// The generation of the handles that may join the variable; odd once a retiring access has joined.
  static std::uint32_t generation(Var& var, Joiners joiners) {
    const auto held = hold(var, joiners);
    return var.generation_;
  }

  /// Begins the next life of a variable whose retiring op has left. Its handles have a new generation.
  static void revive(Var& var, Joiners joiners) {
    const auto held = hold(var, joiners);
    // relaxed: later joins read it under the lock bit.
    var.genesis_.word_.store(Versions::closed, std::memory_order_relaxed);
    var.last_ = &var.genesis_;
    var.reads_ = 0;
    var.commuting_ = false;
    var.generation_ = var.generation_ + 1;
  }

  /// Lets only handles of a new generation join the variable from now on.
  static void renew(Var& var, Joiners joiners) {
    const auto held = hold(var, joiners);
    var.generation_ = var.generation_ + 2;
  }

 private:
  using Versions::is_open, Versions::top_of, Versions::word_of, Versions::counting, Versions::op_of, Versions::in_order;
  using Versions::is_stale, Versions::lock_all, Versions::unlock_all, Versions::hold;

  /// Whether the access cannot share the last version with the accesses that share it now, if there are any.
  static bool is_unlike(const Access& access) {
    return access.var().commuting_ != access.commutes() && !access.exclusive();
  }

  template <class Prepare, class Drop, class MakeFence>
  [[gnu::always_inline]] static Join join_one(Record& op, Joiners joiners, Prepare& prepare, Drop& drop,
                                              MakeFence& make_fence) {
    Access& access = *reinterpret_cast<Access*>(&op + 1);
    Var& var = access.var();
    const auto held = hold(var, joiners);
    if (is_stale(access)) return Join::refused;
    if (access.commutes() || var.commuting_) [[unlikely]] {
      enter_fences({&access, 1}, drop, make_fence);
      op.shape_ |= Op::commuting * access.commutes();
    }
    prepare();
    if (op.retires()) var.generation_ = var.generation_ + 1;
    return enter(access, drop) ? Join::ready : Join::waiting;
  }

  template <class Prepare, class Drop, class MakeFence>
  [[gnu::always_inline]] static Join join_several(Record& op, Joiners joiners, Prepare& prepare, Drop& drop,
                                                  MakeFence& make_fence) {
    const std::span<Access> accesses = op.accesses();
    const bool many = joiners == Joiners::many;
    if (many) lock_all(accesses);
    std::uint32_t versions = 0;
    bool commuting = false, beside_commuting = false;
    for (const Access& access : accesses) {
      const Var& var = access.var();
      Atomics::prefetch_to_write(&var.last_->word_);  // starts all fetches at once
      versions += access.exclusive();
      commuting |= access.commutes();
      beside_commuting |= var.commuting_;
      if (!is_stale(access)) continue;
      if (many) unlock_all(accesses);
      return Join::refused;
    }
    if (commuting || beside_commuting) [[unlikely]] {
      try {
        enter_fences(accesses, drop, make_fence);
      } catch (...) {
        if (many) unlock_all(accesses);
        throw;
      }
    }
    op.shape_ |= Op::commuting * commuting | Op::several_versions * (versions > 1);
    prepare();
    // The counter is one more than the number of accesses, so that the op cannot leave, and its accesses stay valid,
    // until the last lock bit is free.
    const auto count = static_cast<std::int32_t>(accesses.size());
    std::int32_t granted = 0;
    std::uint32_t offset = sizeof(Record);
    for (Access& access : accesses) {
      granted += enter(access, drop, offset);
      offset += sizeof(Access);
    }
    if (many) unlock_all(accesses);
    if (granted == count) return Join::ready;
    // acq_rel: as in grant.
    const std::int32_t before = op.pending.fetch_sub(granted + 1, std::memory_order_acq_rel);
    return before == granted + 1 ? Join::ready : Join::waiting;
  }

  /// Enters a fence before each access that cannot share its version with the others there. Enters all fences, or none
  /// if one throws.
  template <class Drop, class MakeFence>
  [[gnu::noinline]] static void enter_fences(std::span<const Access> accesses, Drop& drop, MakeFence& make_fence) {
    Op* made = nullptr;
    try {
      for (std::size_t i = accesses.size(); i-- > 0;) {
        if (!is_unlike(accesses[i]) || accesses[i].var().reads_ == 0) continue;
        Op& fence = make_fence(accesses[i].var());
        fence.next_ready = made;
        made = &fence;
      }
    } catch (...) {
      while (made != nullptr) drop(static_cast<Record&>(*std::exchange(made, made->next_ready)));
      throw;
    }
    while (made != nullptr) {
      auto& fence = static_cast<Record&>(*std::exchange(made, made->next_ready));
      const auto nobody = [](Record&) {};
      if (enter(fence.accesses().front(), drop)) leave_version(fence.accesses().front(), nobody, drop);
    }
    for (const Access& access : accesses) {
      if (!access.exclusive()) access.var().commuting_ = access.commutes();
    }
  }

  /// Returns whether the access is granted at once. If it is not, its op may be gone on return.
  template <class Drop>
  [[gnu::always_inline]] static bool enter(Access& access, Drop& drop, std::uint32_t offset = sizeof(Record)) {
    Var& var = access.var();
    access.ticket_ = var.tickets_;
    access.offset_ = offset;
    var.tickets_ = access.ticket_ + 1;
    Access& last = *var.last_;
    // acquire: an access that is granted at once sees the writes of the ops that have left the version.
    Word word = last.word_.load(std::memory_order_acquire);
    const bool exclusive = access.exclusive();
    if (exclusive) var.last_ = &access;
    const std::uint64_t reads = var.reads_;
    var.reads_ = exclusive ? 0 : reads + 1;
    if (is_open(word)) {
      access.link_ = top_of(word);
      // release: the thread that closes the version sees the access. No other thread enters here, so this fails only if
      // the version has been closed meanwhile.
      if (last.word_.compare_exchange_strong(word, word_of(access), std::memory_order_acq_rel,
                                             std::memory_order_acquire)) {
        return false;
      }
    }
    if (!exclusive) {
      access.link_ = &last;
      return true;
    }
    if (word != counting(static_cast<std::int64_t>(reads))) {
      last.link_ = &access;
      // acq_rel: either the last read to leave sees the link, or this thread sees the effects of all reads.
      if (last.word_.fetch_sub(2 * reads, std::memory_order_acq_rel) - 2 * reads != Versions::closed) return false;
    }
    end_version(last, var, drop);
    return true;
  }

  template <class Visit, class Ready, class Drop>
  [[gnu::noinline]] static void leave_several(Record& op, Visit& visit, Ready& ready, Drop& drop) {
    std::int32_t versions = 0;
    for (Access& access : op.accesses()) {
      if (access.exclusive()) {
        ++versions;
        continue;
      }
      visit(access);
      leave_read(access, ready, drop);
    }
    if (versions == 0) return drop(op);
    // relaxed: other threads reach the versions only through the operations that close them.
    if (versions > 1) op.pending.store(versions, std::memory_order_relaxed);
    for (Access* access = op.accesses().data(); versions > 0; ++access) {
      if (!access->exclusive()) continue;
      visit(*access);
      --versions;
      leave_version(*access, ready, drop);
      // After the last version the op may be gone.
    }
  }

  template <class Ready, class Drop>
  static void leave_read(Access& access, Ready& ready, Drop& drop) {
    Access& version = *access.link_;
    Var& var = access.var();
    // acq_rel: the last read to leave sees the effects of all of them.
    if (version.word_.fetch_add(2, std::memory_order_acq_rel) + 2 != Versions::closed) return;
    Access& next = *version.link_;
    end_version(version, var, drop);
    grant(next, ready);
  }

  template <class Ready, class Drop>
  [[gnu::always_inline]] static void leave_version(Access& access, Ready& ready, Drop& drop) {
    Word word = access.word_.load(std::memory_order_acquire);
    while (true) {
      Access* const top = top_of(word);
      if (top != nullptr && top->exclusive()) {
        // The next version has joined: the list is complete, and no other thread touches the word.
        Access* const reads = top->link_;
        if (reads == nullptr) {
          end_version(access, access.var(), drop);
          return grant(*top, ready);
        }
        const auto [first, count] = in_order(reads);
        access.link_ = top;
        access.word_.store(counting(-count), std::memory_order_release);  // see for_each_behind()
        return grant_reads(first, access, ready);
      }
      // acq_rel: accesses that join later see the writes of this op, and this thread sees the accesses that have
      // joined.
      if (access.word_.compare_exchange_strong(word, Versions::closed, std::memory_order_acq_rel,
                                               std::memory_order_acquire)) {
        return grant_reads(in_order(top).first, access, ready);
      }
    }
  }

  template <class Ready>
  static void grant_reads(Access* first, Access& version, Ready& ready) {
    while (first != nullptr) {
      Access* const next = first->link_;
      first->link_ = &version;
      grant(*first, ready);
      first = next;
    }
  }

  template <class Ready>
  [[gnu::always_inline]] static void grant(Access& access, Ready& ready) {
    Record& op = op_of(access);
    // acq_rel: the thread that runs the op sees the writes of every predecessor. An op of one access lacks no grant
    // now.
    if (op.count() == 1 || op.pending.fetch_sub(1, std::memory_order_acq_rel) == 1) ready(op);
  }

  /// Drops the record of the version's op if this was its last version.
  template <class Drop>
  [[gnu::always_inline]] static void end_version(Access& version, const Var& var, Drop& drop) {
    if (&version == &var.genesis_) return;
    Record& op = op_of(version);
    // acq_rel: the thread that ends the last version sees what the others did.
    const bool several = op.shape_ & Op::several_versions;
    if (!several || op.pending.fetch_sub(1, std::memory_order_acq_rel) == 1) drop(op);
  }
};

}  // namespace windrow
