// Checking mode: checks by the bytes of watched variables whether ops keep to their declared accesses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "diagnosis/page_guard.h"
#include "process/fork.h"
#include "record/op.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

/// Belongs to one engine, which runs its ops one at a time. Any thread may call the members.
///
/// Invariants, under mutex_:
///   1. VarState::writers counts the ops with write access that have begun and for which let_go() was not called.
///      `async_users` counts the asynchronous ops with any access. Their pages stay open, since system calls of other
///      threads may use them.
///   2. `hash` is the hash of the bytes after the last op that may write them. It is invalid while such ops are active,
///      and while the bytes are not `settled`, since a device may be writing to them.
class AccessCheck {
 public:
  /// May also be called by an op that has begun. If reads of the bytes cannot be seen, logs a warning, once for
  /// variables of this name.
  void watch(const VarState& var, std::span<std::byte> bytes) WINDROW_EXCLUDES(mutex_);
  void forget(const VarState& var) WINDROW_EXCLUDES(mutex_);

  /// Called when the op is about to run on this thread.
  void begin(OpRecord& op) WINDROW_EXCLUDES(mutex_);
  /// Called when the op's function has returned. Returns a MisuseError that says what the op has done wrong, or null.
  std::exception_ptr end(OpRecord& op) noexcept WINDROW_EXCLUDES(mutex_);
  /// How an op ended.
  enum class End {
    of_function,  ///< it was not asynchronous
    of_async,
    of_issue,  ///< an asynchronous op on an ordered lane, whose issued work continues
  };
  /// Called after end(): the op no longer writes. Its issued work may still write, until an op begins that comes after
  /// that work.
  void let_go(OpRecord& op, End how) WINDROW_EXCLUDES(mutex_);

  void each_mutex(EachMutex f) { f(mutex_); }  // see fork.h

 private:
  static void count(OpRecord& op, bool async, std::int16_t ops);

  struct Watched {
    Watched(const VarState& of, std::span<std::byte> behind);

    const VarState* const var;
    const std::span<std::byte> bytes;
    std::uint64_t hash;
    bool settled = true;
    std::optional<PageGuard> guard;  ///< set if the bytes are whole pages
  };

  Mutex mutex_;
  std::list<Watched> watched_ WINDROW_GUARDED_BY(mutex_);
  std::set<std::string_view> told_ WINDROW_GUARDED_BY(mutex_);  // names of variables whose reads cannot be seen
};

}  // namespace windrow
