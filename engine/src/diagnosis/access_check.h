// Checking mode: whether ops keep to the accesses they declared, as far as the bytes behind their variables tell.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <optional>
#include <span>

#include "core/op.h"
#include "diagnosis/page_guard.h"
#include "process/fork.h"
#include "windrow/engine/mutex.h"

namespace windrow {

/// Of one engine, which runs its ops one at a time. All members may be called by any thread.
///
/// Invariants, under mutex_:
///   1. VarState::writers counts the ops with access to write that have begun and not let go.
///   2. `hash` is that of the bytes when the last op that may write them had ended, unless there are such ops, or the
///      bytes are not `settled`: a device may be writing to them.
class AccessCheck {
 public:
  /// Also by an op that has begun.
  void watch(const VarState& var, std::span<std::byte> bytes) WINDROW_EXCLUDES(mutex_);
  void forget(const VarState& var) WINDROW_EXCLUDES(mutex_);

  /// The op is about to run on this thread.
  void begin(OpRecord& op) WINDROW_EXCLUDES(mutex_);
  /// Its function has returned. Returns a MisuseError that says what it has done wrong, or null.
  std::exception_ptr end(OpRecord& op) noexcept WINDROW_EXCLUDES(mutex_);
  /// After end(): the op writes no more; where it is not `settled`, what it has issued on its lane still may, until an
  /// op begins that comes after that.
  void let_go(OpRecord& op, bool settled) WINDROW_EXCLUDES(mutex_);

  void each_mutex(EachMutex f) { f(mutex_); }  // see fork.h

 private:
  struct Watched {
    Watched(const VarState& of, std::span<std::byte> behind);

    const VarState* const var;
    const std::span<std::byte> bytes;
    std::uint64_t hash;
    bool settled = true;
    std::optional<PageGuard> guard;  ///< where the bytes are whole pages
  };

  Mutex mutex_;
  std::list<Watched> watched_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
