// What dependency.h keeps: a variable's chain of versions, and an op's places in such chains.
//
// A version lives in the exclusive access that made it. Its one word tells all that happens to it:
//   open    its op has not left yet. The word is a list of those who wait for it: the reads that joined since, and on
//           top of them the exclusive access that makes the next version, if that has joined.
//   closed  its op has left. The word counts the reads that have left since. Once the next exclusive access has joined,
//           as many as had joined before it are taken off, so that the last of them brings the count to nought.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <utility>

#include "core/atomics.h"
#include "windrow/engine/var.h"

namespace windrow {

template <class Atomics, class Record>
struct Dependency;

/// `Record` is derived from Op, and an op's accesses lie directly behind its record, in one piece of memory. Only
/// Dependency writes what it declares as its own.
template <class Atomics, class Record>
struct Versions {
  template <class T>
  using Atomic = typename Atomics::template Atomic<T>;
  template <class T>
  using Plain = typename Atomics::template Plain<T>;

  class Var;
  class Access;

  /// How many threads may be inside of a join at a time.
  enum class Joiners { one, many };

  /// The word of a version. As a number it is twice the count and one; as a list the address of the top access.
  using Word = std::uintptr_t;
  static constexpr Word closed = 1;
  static bool is_open(Word word) { return (word & 1) == 0; }
  static Access* top_of(Word word) { return reinterpret_cast<Access*>(word); }
  static Word word_of(Access& access) { return reinterpret_cast<Word>(&access); }
  /// A closed version's word when that many reads have left, or more than that are to.
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
    /// The op touches the variable like that, too.
    void strengthen(AccessKind other) {
      if (kind() != other) var_ = reinterpret_cast<Word>(&var()) | static_cast<Word>(AccessKind::mutate);
    }
    /// Whether it makes a version. Those that commute do not: they share one as reads do.
    bool exclusive() const {
      static_assert(AccessKind{1} == AccessKind::overwrite && AccessKind{2} == AccessKind::mutate);
      return (((var_ & kind_mask) + 1) & 2) != 0;
    }
    bool commutes() const {
      static_assert(AccessKind{3} == AccessKind::commute);
      return (((var_ & kind_mask) + 1) & 4) != 0;
    }
    bool writes() const { return kind() != AccessKind::read; }
    /// Once it has joined: its place at the variable, numbered in the order of the joins, modulo 2^32.
    std::uint32_t ticket() const { return ticket_; }
    /// Before: of which life of the variable the handle was.
    std::uint32_t generation() const { return ticket_; }

   private:
    friend Var;
    friend Versions;
    friend Dependency<Atomics, Record>;

    explicit Access(Word word) : word_(word) {}

    static constexpr Word kind_mask = 3;

    Word var_ = 0;  // and the kind, in its low bits
    // Leads from who waits in a list to the next below; from a granted read to the version it reads; from a closed
    // version to the next one.
    Plain<Access*> link_{nullptr};
    Atomic<Word> word_{0};
    std::uint32_t ticket_ = 0;  // or the generation
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
    /// Forgotten if the variable is too far away, or not a whole number of steps.
    void set_next(Var& var) {
      const auto distance = reinterpret_cast<std::byte*>(&var) - reinterpret_cast<std::byte*>(this);
      const auto steps = static_cast<std::int16_t>(distance / step());
      next_ = steps * step() == distance ? steps : std::int16_t{0};
    }

    // All belongs to whoever joins.
    LockBit<Atomics> lock_;
    Plain<bool> commuting_{false};        // whether those that share the last version commute
    std::int16_t next_ = 0;               // the variable that came after this one, by its distance; see foresee()
    Plain<std::uint32_t> generation_{0};  // of the handles that may join; odd once a retiring access has joined
    Plain<std::uint32_t> tickets_{0};

   public:
    /// Free for the engine.
    std::uint32_t owner = 0;

   private:
    Plain<std::uint64_t> reads_{0};  // joined since the last version
    Plain<Access*> last_{&genesis_};
    Access genesis_{closed};  // the first version, which belongs to no op
  };

  /// Up to so many accesses are put in order by insertion alone, whose steps grow with their square.
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

  /// Puts one more access, which may lie among those behind them, into `kept` ones that are canonical. By insertion,
  /// since mostly they are few.
  [[gnu::always_inline]] static void insert(Access* first, std::size_t& kept, const Access& more) {
    const Access next = more;  // its place may be taken
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
    /// Whether one of its accesses does.
    bool commutes() const { return shape_ & commuting; }
    bool retires_or_commutes() const { return shape_ & (retiring | commuting); }

    /// Grants still missing, where there is more than one access. Free for the engine while the op runs.
    Atomic<std::int32_t> pending{0};

   private:
    friend Versions;
    friend Dependency<Atomics, Record>;
    static constexpr std::uint32_t flag_bits = 3, retiring = 1, several_versions = 2, commuting = 4;

    std::uint32_t shape_ = 0;

   public:
    /// Owner: whoever the op was given to when it became ready.
    Op* next_ready = nullptr;
  };

  /// Puts accesses behind the record, as canonical ones: `access_of(i)` gives the i-th of `count`. A retiring op has
  /// one, exclusive.
  template <class Count, class AccessOf>
  [[gnu::always_inline]] static void place(Record& op, Count count, AccessOf&& access_of, bool retires = false) {
    auto* const first = reinterpret_cast<Access*>(&op + 1);
    const std::size_t all = count;
    std::size_t kept = 0;
    if (all <= few) [[likely]] {
      const Var* highest = nullptr;
      for (std::size_t i = 0; i < all; ++i) {
        const Access next = access_of(i);
        if (&next.var() > highest) {  // mostly they come sorted
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

  /// Of the only thread that joins, before an op of one access: asks for the lines that its join looks at, and for
  /// those of the variable that came next the last time. Programs go round in loops, and leaves were on other cores.
  /// `before` is the variable of the call before, null at first.
  static void foresee(Var& var, Var*& before) {
    prefetch_version(var);
    if (before != nullptr) before->set_next(var);
    before = &var;
    prefetch_version(var.next());
  }

  /// Of an op that is about to run: asks for the lines that its leave is going to look at, as far as they are known.
  [[gnu::always_inline]] static void foresee_leave(Record& op) {
    for (const Access& access : op.accesses()) {
      if (!access.exclusive()) {
        Atomics::prefetch_to_write(&access.link_->word_);
      } else if (const Access* const next = top_of(access.word_.load(std::memory_order_relaxed))) {
        Atomics::prefetch_to_write(next);
        Atomics::prefetch_to_write(&next->word_);
      }
    }
  }

  /// The op of an access.
  static Record& op_of(Access& access) {
    return *reinterpret_cast<Record*>(reinterpret_cast<std::byte*>(&access) - access.offset_);
  }

 protected:
  /// Whether the variable has ended, or begun another life, since the access was made; where nobody else joins.
  static bool is_stale(const Access& access) { return access.var().generation_ != access.generation(); }
  static BitHeld<Atomics> hold(Var& var, Joiners joiners) {
    return BitHeld<Atomics>(joiners == Joiners::many ? &var.lock_ : nullptr);
  }
  /// Of canonical accesses.
  static void lock_all(std::span<const Access> accesses) {
    for (const Access& access : accesses) access.var().lock_.lock();
  }
  static void unlock_all(std::span<const Access> accesses) {
    for (const Access& access : accesses) access.var().lock_.unlock();
  }

  /// Turns a list of reads round: the one that joined first, and how many there are. Asks for their ops' counters.
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
