// Poison: who carries which failure, and of which ones somebody was told.
#pragma once

#include <atomic>
#include <exception>
#include <span>
#include <vector>

#include "core/op.h"
#include "process/fork.h"
#include "windrow/engine/mutex.h"

namespace windrow {

class FailureLog;

/// A root, with what must be known about it to report it neither never nor for ever.
struct RootFailure : Failure {
  std::uint32_t engine = 0;  ///< number of the engine whose log made it
  /// Variables poisoned by it or by what it caused. Written by who has exclusive access to one.
  std::atomic<std::int64_t> carriers{0};
  std::atomic<bool> reported{false};
  bool listed = true;  ///< in its log; guarded by the log's mutex
};

class FailureLog {
 public:
  /// `number` is the engine's.
  explicit FailureLog(std::uint32_t number);

  // A failure that there is no memory to describe is not lost: it is the cause itself, or `undescribed`.
  /// The op threw `error`; where that is an OpError of a wait inside the op, the failure has that one's as its cause.
  FailurePtr thrown(const OpInfo& op, std::exception_ptr error) noexcept;
  FailurePtr lane(std::string_view name, std::exception_ptr error) noexcept;
  static FailurePtr caused(Failure::Kind kind, const OpInfo& op, const FailurePtr& cause) noexcept;
  /// A root that stands for all of which nothing more can be told.
  FailurePtr undescribed() noexcept;

  /// Set and clear a variable's poison; the caller has exclusive access.
  void poison(VarState& var, FailurePtr failure);
  void clear(VarState& var);
  /// False: no variable carries poison that was set before anything the calling thread has seen.
  bool any_poison() const { return poisoned_.load(std::memory_order_relaxed) != 0; }

  /// While it lives, the log keeps the root of the failure.
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

  /// The roots that wait_all has to name.
  std::vector<FailurePtr> to_report() WINDROW_EXCLUDES(mutex_);
  /// They have been named; forgets what is of no interest any more.
  void reported(std::span<const FailurePtr> failures) WINDROW_EXCLUDES(mutex_);
  /// The roots that nobody was told of.
  std::vector<FailurePtr> unreported() WINDROW_EXCLUDES(mutex_);

  void each_mutex(EachMutex f) { f(mutex_); }  // see fork.h

 private:
  using Roots = std::vector<std::shared_ptr<RootFailure>>;

  FailurePtr root(Failure::Kind kind, const OpInfo& op, std::exception_ptr error) noexcept WINDROW_EXCLUDES(mutex_);

  void list_again(FailurePtr failure) WINDROW_EXCLUDES(mutex_);
  /// Takes out the roots without interest. The caller drops them without the lock: exceptions are user code. Takes none
  /// if there is no memory for the list.
  Roots prune() noexcept WINDROW_REQUIRES(mutex_);

  const std::uint32_t number_;
  const std::shared_ptr<RootFailure> undescribed_;  // in no list
  std::atomic<std::int64_t> poisoned_{0};           // variables
  Mutex mutex_;
  Roots roots_ WINDROW_GUARDED_BY(mutex_);
  std::size_t prune_at_ WINDROW_GUARDED_BY(mutex_) = 64;
};

}  // namespace windrow
