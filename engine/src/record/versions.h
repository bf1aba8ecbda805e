// The data of dependency.h: a variable's chain of versions, and an op's places in such chains.
//
// A version lives in the exclusive access that made it. A single word holds its state:
//   open    The version's op has not left. The word is a list of the accesses that wait for it: the reads that have
//           joined since, and above them the exclusive access that makes the next version, if that has joined.
//   closed  The version's op has left. The word counts the reads that have left since. When the next exclusive access
//           joins, the number of reads that joined before it is subtracted, so that the last of these reads to leave
//           brings the count to zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "record/atomics.h"
#include "windrow/engine/var.h"

namespace windrow {

template <class Atomics, class Record>
struct Dependency;

/// `Record` is derived from Op. An op's accesses lie directly behind its record, in the same piece of memory. Only
/// Dependency writes the private members of the classes here.
template <class Atomics, class Record>
struct Versions {
  template <class T>
  using Atomic = typename Atomics::template Atomic<T>;
  template <class T>
  using Plain = typename Atomics::template Plain<T>;
  template <class T>
  using Seen = typename Atomics::template Seen<T>;

  class Var;
  class Access;

  /// How many threads may join at the same time.
  enum class Joiners { one, many };

  /// The word of a version. A count n is stored as 2n + 1, a list as the address of its top access.
  using Word = std::uintptr_t;
  static constexpr Word closed = 1;
  static bool is_open(Word word) { return (word & 1) == 0; }
  static Access* top_of(Word word) { return reinterpret_cast<Access*>(word); }
  static Word word_of(Access& access) { return reinterpret_cast<Word>(&access); }
  /// A closed version's word when that many reads have left, or, if negative, when that many reads must still leave.
  static Word counting(std::int64_t reads) { return static_cast<Word>(2 * reads + 1); }

  /// One op's place at one variable, and the version it makes if it is exclusive.
  class Access {
   public:
    Access() = default;
    Access(Var& var, std::uint32_t generation, AccessKind kind)
        : var_(reinterpret_cast<Word>(&var) | static_cast<Word>(kind)), ticket_(generation) {}
    Access(const Access& other) : var_(other.var_), ticket_(other.ticket_) {}
    Access& operator=(const Access& other) {
      var_ = other.var_;
      ticket_ = other.ticket_;
      link_ = nullptr;
      return *this;
    }

    Var& var() const { return *reinterpret_cast<Var*>(var_ & ~kind_mask); }
    AccessKind kind() const { return static_cast<AccessKind>(var_ & kind_mask); }
    /// Merges another access of the op to the same variable into this one.
    void strengthen(AccessKind other) {
      if (kind() != other) var_ = reinterpret_cast<Word>(&var()) | static_cast<Word>(AccessKind::mutate);
    }
    /// Whether the access makes a version. Commuting accesses do not: they share one, as reads do.
    bool exclusive() const {
      static_assert(AccessKind{1} == AccessKind::overwrite && AccessKind{2} == AccessKind::mutate);
      return (((var_ & kind_mask) + 1) & 2) != 0;
    }
    bool commutes() const {
      static_assert(AccessKind{3} == AccessKind::commute);
      return (((var_ & kind_mask) + 1) & 4) != 0;
    }
    bool writes() const { return kind() != AccessKind::read; }
    /// After the join: the number of the access among the variable's joins, modulo 2^32.
    std::uint32_t ticket() const { return ticket_; }
    /// Before the join: the generation of the handle, which identifies a life of the variable.
    std::uint32_t generation() const { return ticket_; }

   private:
    friend Var;
    friend Versions;
    friend Dependency<Atomics, Record>;

    explicit Access(Word word) : word_(word) {}

    static constexpr Word kind_mask = 3;

    Word var_ = 0;  // the variable's address, with the kind in the low bits
    // Points from an access that waits in a list to the next one below; from a granted read to the version that it
    // reads; from a closed version to the next one.
    Seen<Access*> link_{nullptr};
    Atomic<Word> word_{0};
    std::uint32_t ticket_ = 0;  // before the join, the generation
    std::uint32_t offset_ = 0;  // bytes from the op's record
  };

  class Var {
   public:
    Var() = default;
    Var(const Var&) = delete;
    Var& operator=(const Var&) = delete;

   private:
    friend Versions;
    friend Dependency<Atomics, Record>;

    static constexpr std::ptrdiff_t step() { return sizeof(Var); }
    Var& next() { return *reinterpret_cast<Var*>(reinterpret_cast<std::byte*>(this) + next_ * step()); }
    /// Stores no successor if `var` is too far away, or not at a whole number of steps.
    void set_next(Var& var) {
      const auto distance = reinterpret_cast<std::byte*>(&var) - reinterpret_cast<std::byte*>(this);
      const auto steps = static_cast<std::int16_t>(distance / step());
      next_ = steps * step() == distance ? steps : std::int16_t{0};
    }

    // Owner of all private fields: the thread that joins.
    LockBit<Atomics> lock_;
    Plain<bool> commuting_{false};  // whether the accesses that share the last version commute
    std::int16_t next_ = 0;         // distance to the variable that was joined after this one; see prefetch_for_join()
    Plain<std::uint32_t> generation_{0};  // of the handles that may join; odd once a retiring access has joined
    Plain<std::uint32_t> tickets_{0};

   public:
    /// For use by the engine.
    std::uint32_t owner = 0;

   private:
    Plain<std::uint64_t> reads_{0};  // the number of reads that have joined since the last version
    Plain<Access*> last_{&genesis_};
    Access genesis_{closed};  // the first version, which belongs to no op
  };

  /// Up to this number of accesses are sorted by insertion alone, whose cost is quadratic.
  static constexpr std::size_t few = 16;

  /// Sorts by variable and merges repeats. Returns how many remain.
  static std::size_t canonicalise(std::span<Access> accesses) {
    if (accesses.size() > few) {
      std::sort(accesses.begin(), accesses.end(), [](const Access& a, const Access& b) { return &a.var() < &b.var(); });
    }
    std::size_t kept = 0;
    for (const Access& each : accesses) insert(accesses.data(), kept, each);
    return kept;
  }

  /// Inserts one more access into the `kept` canonical ones that begin at `first`. It may lie in the memory behind
  /// them. Insertion is fast because there are usually few accesses.
  [[gnu::always_inline]] static void insert(Access* first, std::size_t& kept, const Access& more) {
    const Access next = more;  // a copy, since the insertion may overwrite `more`
    std::size_t at = kept;
    while (at > 0 && &next.var() < &first[at - 1].var()) --at;
    if (at > 0 && &next.var() == &first[at - 1].var()) return first[at - 1].strengthen(next.kind());
    ::new (first + kept) Access(next);
    if (at == kept++) return;
    for (std::size_t i = kept; --i > at;) first[i] = first[i - 1];
    first[at] = next;
  }

  /// The part of an op that dependency tracking touches.
  class Op {
   public:
    std::uint32_t count() const { return shape_ >> flag_bits; }
    std::span<Access> accesses() { return {reinterpret_cast<Access*>(static_cast<Record*>(this) + 1), count()}; }
    /// Whether this op ends its variable's life.
    bool retires() const { return shape_ & retiring; }
    /// Whether one of this op's accesses commutes.
    bool commutes() const { return shape_ & commuting; }
    bool retires_or_commutes() const { return shape_ & (retiring | commuting); }

    /// The number of grants still missing, if the op has more than one access. For use by the engine while the op runs.
    Atomic<std::int32_t> pending{0};

   private:
    friend Versions;
    friend Dependency<Atomics, Record>;
    static constexpr std::uint32_t flag_bits = 3, retiring = 1, several_versions = 2, commuting = 4;

    std::uint32_t shape_ = 0;

   public:
    /// Owner: the thread or queue that the op was given to when it became ready.
    Op* next_ready = nullptr;
  };

  /// Puts the op's accesses behind its record, in canonical form. `access_of(i)` returns the i-th of `count`. A
  /// retiring op has one access, which is exclusive.
  template <class Count, class AccessOf>
  [[gnu::always_inline]] static void place(Record& op, Count count, AccessOf&& access_of, bool retires = false) {
    auto* const first = reinterpret_cast<Access*>(&op + 1);
    const std::size_t all = count;
    std::size_t kept = 0;
    if (all <= few) [[likely]] {
      const Var* highest = nullptr;
      for (std::size_t i = 0; i < all; ++i) {
        const Access next = access_of(i);
        if (&next.var() > highest) {  // usually they are already sorted
          highest = &next.var();
          ::new (first + kept++) Access(next);
        } else {
          insert(first, kept, next);
        }
      }
    } else {
      for (std::size_t i = 0; i < all; ++i) ::new (first + i) Access(access_of(i));
      kept = canonicalise({first, all});
    }
    op.shape_ = static_cast<std::uint32_t>(kept) << Op::flag_bits | Op::retiring * retires;
    op.pending.store(static_cast<std::int32_t>(kept) + 1, std::memory_order_relaxed);
  }

  /// Prefetches the cache lines that an op with one access needs to join `var`. Also prefetches those of the variable
  /// that was joined after `var` last time, since programs run in loops. (Other cores wrote these lines as ops left.)
  /// Called only while a single thread joins. `before` is the variable of the previous call, null at first.
  static void prefetch_for_join(Var& var, Var*& before) {
    prefetch_version(var);
    if (before != nullptr) before->set_next(var);
    before = &var;
    prefetch_version(var.next());
  }

  /// A number (modulo 2^32) that changes with each access other than a read that joins the variable.
  static std::uint32_t written(Var& var, Joiners joiners) {
    const auto held = hold(var, joiners);
    return var.tickets_ - (var.commuting_ ? 0 : static_cast<std::uint32_t>(var.reads_));
  }

  /// Whether all accesses that have joined the variable have left it.
  static bool is_idle(Var& var, Joiners joiners) {
    const auto held = hold(var, joiners);
    // acquire: sees the effects of the ops that have left.
    return var.last_->word_.load(std::memory_order_acquire) == counting(static_cast<std::int64_t>(var.reads_));
  }

  /// The op of an access.
  static Record& op_of(Access& access) {
    return *reinterpret_cast<Record*>(reinterpret_cast<std::byte*>(&access) - access.offset_);
  }

  /// Calls f(op) for each op that directly waits for the access to leave, as far as the versions show now. For an
  /// exclusive access, these are the ops that wait at the version that it makes. For a granted read, it is the op that
  /// waits for the last of its version's reads. No thread may join during the call. The op of the access must not leave
  /// meanwhile: it waits, or it cannot be granted before an op that waits.
  template <class F>
  static void for_each_behind(const Access& access, F&& f) {
    // acquire, here and below: sees the links that were written before the word.
    if (access.exclusive()) {
      const Word word = access.word_.load(std::memory_order_acquire);
      if (!is_open(word)) return;
      for (Access* top = top_of(word); top != nullptr; top = top->link_) f(op_of(*top));
      return;
    }
    Access* const version = access.link_;
    const bool granted = version != nullptr && (version->exclusive() || version->var_ == 0);  // else in a list of reads
    if (!granted) return;
    const Word word = version->word_.load(std::memory_order_acquire);
    if (!is_open(word) && static_cast<std::make_signed_t<Word>>(word) < 0) f(op_of(*version->link_));
  }

 protected:
  /// Whether the variable has ended, or begun another life, since the access was made. No other thread may join it
  /// during the call.
  static bool is_stale(const Access& access) { return access.var().generation_ != access.generation(); }
  static BitHeld<Atomics> hold(Var& var, Joiners joiners) {
    return BitHeld<Atomics>(joiners == Joiners::many ? &var.lock_ : nullptr);
  }
  /// The accesses must be canonical.
  static void lock_all(std::span<const Access> accesses) {
    for (const Access& access : accesses) access.var().lock_.lock();
  }
  static void unlock_all(std::span<const Access> accesses) {
    for (const Access& access : accesses) access.var().lock_.unlock();
  }

  /// Reverses a list of reads. Returns the read that joined first, and the number of reads. Prefetches the pending
  /// counters of their ops.
  static std::pair<Access*, std::int64_t> in_order(Access* top) {
    Access* first = nullptr;
    std::int64_t count = 0;
    for (; top != nullptr; ++count) {
      Atomics::prefetch_to_write(&op_of(*top));
      Access* const below = top->link_;
      top->link_ = first;
      first = std::exchange(top, below);
    }
    return {first, count};
  }

 private:
  static void prefetch_version(const Var& var) {
    Atomics::prefetch_to_write(var.last_);
    Atomics::prefetch_to_write(&var.last_->word_);
  }
};

}  // namespace windrow
