// Poison: which variables carry which failure, and which failures were reported.
#pragma once

#include <array>
#include <atomic>
#include <exception>
#include <span>
#include <vector>

#include "process/fork.h"
#include "record/op.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

class FailureLog;

/// A root failure, with the state needed to report it at least once, but not repeatedly for ever.
struct RootFailure : Failure {
  std::uint32_t engine = 0;  ///< the number of the engine whose log made it
  /// The exception that `error` nests, or null. Failures that nest the same exception are one event.
  std::exception_ptr nested = {};
  /// The number of variables that carry this failure or a consequence of it. Written by ops with exclusive access to
  /// such a variable.
  std::atomic<std::int64_t> carriers{0};
  std::atomic<bool> reported{false};
  bool listed = true;  ///< whether it is in its log; guarded by the log's mutex
};

class FailureLog {
 public:
  /// `number` is the engine's number.
  explicit FailureLog(std::uint32_t number);

  // If there is no memory to describe a failure, these functions return its cause, or undescribed(), so that no failure
  // is lost.
  /// The failure of an op that threw `error`. If `error` is the OpError of a wait inside the op, the wait's failure is
  /// the cause.
  FailurePtr thrown(const OpInfo& op, std::exception_ptr error, std::string changes = {}) noexcept;
  FailurePtr lane(std::string_view name, std::exception_ptr error) noexcept;
  static FailurePtr caused(Failure::Kind kind, const OpInfo& op, const FailurePtr& cause,
                           std::string changes = {}) noexcept;
  /// A root that stands for all failures that could not be described.
  FailurePtr undescribed() noexcept;

  /// Set and clear a variable's poison. The caller has exclusive access to the variable.
  void poison(VarState& var, FailurePtr failure) WINDROW_EXCLUDES(mutex_);
  void clear(VarState& var) WINDROW_EXCLUDES(mutex_);
  /// Clears the poison if it has the root of one of the failures.
  void clear_of(VarState& var, std::span<const FailurePtr> failures) WINDROW_EXCLUDES(mutex_);
  /// The variable's poison if it has the root of one of the failures, else null. Needs no access to the variable.
  FailurePtr poison_of(const VarState& var, std::span<const FailurePtr> failures) WINDROW_EXCLUDES(mutex_);
  /// If false, no variable carries poison whose setting happened before this call.
  bool any_poison() const { return poisoned_.load(std::memory_order_relaxed) != 0; }

  /// Keeps the root of the failure in the log during its lifetime.
  class Hold {
   public:
    explicit Hold(const FailurePtr& failure);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    const FailurePtr failure_;
  };

  static void mark_reported(std::span<const FailurePtr> failures);

  /// The roots that wait_all must report: those that a variable still carries, or that were never reported.
  std::vector<FailurePtr> to_report() WINDROW_EXCLUDES(mutex_);
  /// Marks these as reported, and drops the roots that need no further report.
  void reported(std::span<const FailurePtr> failures) WINDROW_EXCLUDES(mutex_);
  /// The roots that were never reported. Of roots that nest the same exception, returns only the first. Returns none of
  /// them if a root that failed with that exception itself is listed, or if the exception was reported.
  std::vector<FailurePtr> unreported() WINDROW_EXCLUDES(mutex_);

  void each_mutex(EachMutex f) { f(mutex_); }  // see fork.h

 private:
  using Roots = std::vector<std::shared_ptr<RootFailure>>;
  /// Objects that the caller destroys without the lock, since destroying an exception runs user code.
  struct Dropped {
    Roots roots;
    std::vector<std::exception_ptr> nested;
  };

  FailurePtr root(Failure::Kind kind, const OpInfo& op, std::exception_ptr error, std::string changes) noexcept
      WINDROW_EXCLUDES(mutex_);

  /// Destroys the old poison without the lock.
  void set(VarState& var, FailurePtr poison) noexcept WINDROW_EXCLUDES(mutex_);
  void list_again(FailurePtr failure) WINDROW_EXCLUDES(mutex_);
  /// Removes the roots that need no further report; none if there is no memory for the list.
  Dropped prune() noexcept WINDROW_REQUIRES(mutex_);

  const std::uint32_t number_;
  const std::shared_ptr<RootFailure> undescribed_;  // in no list
  std::atomic<std::int64_t> poisoned_{0};           // the number of poisoned variables
  Mutex mutex_;  // also held to change a variable's poison, so that poison_of() may read it at any time
  Roots roots_ WINDROW_GUARDED_BY(mutex_);
  std::size_t prune_at_ WINDROW_GUARDED_BY(mutex_) = 64;
  /// The latest exceptions that removed roots nested, from `next_pruned_` on.
  std::array<std::exception_ptr, 64> pruned_ WINDROW_GUARDED_BY(mutex_);
  std::size_t next_pruned_ WINDROW_GUARDED_BY(mutex_) = 0;
};

}  // namespace windrow
