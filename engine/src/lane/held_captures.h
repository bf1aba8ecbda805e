// What the functions of an ordered lane's ops have captured, until the device has done the work that they issued.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <variant>

#include "process/fork.h"
#include "windrow/engine/engine.h"
#include "windrow/engine/lane.h"
#include "windrow/engine/mutex.h"

namespace windrow {

class Core;

/// Shared by a lane and by graphs with ops of that lane, which may outlive the engine. Thread-safe.
///
/// Captures are destroyed in the order in which they were kept: by a thread that keeps more of them, or in a callback
/// of the lane, whichever comes first.
class HeldCaptures : public std::enable_shared_from_this<HeldCaptures> {
 public:
  /// A function that is not called any more. Allocated before the function issues work, so that keeping it cannot fail.
  struct Held {
    std::variant<OpFunction, AsyncFunction> function = {};
    std::uint64_t serial = 0;  ///< of the point until which it is kept
    Held* next = nullptr;
  };

  HeldCaptures(const Core* core, const std::shared_ptr<Lane>& lane) : core_(core), owner_(lane), lane_(lane.get()) {}
  ~HeldCaptures();

  void recorded(std::uint64_t serial) { recorded_.store(serial, std::memory_order_release); }
  /// Keeps the function until the last recorded point is reached.
  void keep(std::unique_ptr<Held> held) noexcept WINDROW_EXCLUDES(mutex_);
  /// Destroys what is kept for points that are reached, and waits for threads that do so already.
  void finish() noexcept WINDROW_EXCLUDES(mutex_);
  /// Whether the calling thread destroys captures of this engine's ops.
  static bool destroys_here(const Core* core);

  // ---- fork; see fork.h ----
  void each_mutex(EachMutex f) { f(mutex_); }
  /// The threads of the lane do not exist in a forked child. What is kept is leaked.
  void forget_device() noexcept WINDROW_UNCHECKED_LOCKING { first_ = last_ = nullptr; }

 private:
  /// Takes the first function if its point is reached.
  std::unique_ptr<Held> take_reached() noexcept WINDROW_EXCLUDES(mutex_);
  void release_reached() noexcept WINDROW_EXCLUDES(mutex_);
  /// Asks the lane for a callback at the last point for which something is kept, unless one is due.
  void ask() noexcept WINDROW_EXCLUDES(mutex_);

  const Core* const core_;
  const std::weak_ptr<Lane> owner_;  // weak, so that a callback cannot end the lane on the lane's own thread
  Lane* const lane_;
  std::atomic<std::uint64_t> recorded_{0};
  std::atomic<int> destroying_{0};  // the number of threads inside release_reached()

  Mutex mutex_;
  Held* first_ WINDROW_GUARDED_BY(mutex_) = nullptr;
  Held* last_ WINDROW_GUARDED_BY(mutex_) = nullptr;
  std::shared_ptr<HeldCaptures> until_callback_ WINDROW_GUARDED_BY(mutex_);  // set while a callback is due
};

}  // namespace windrow
