#include "core/back_pressure.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/core.h"
#include "diagnosis/engine_log.h"
#include "windrow/engine/internal/engine_use.h"

namespace windrow {
namespace {

/// The most pushes of a thread between two reads of the number of pending ops. Fewer if max_pending_ops is small.
constexpr std::uint64_t pushes_between_looks = 256;
/// A thread that is held back is released if no op finishes for this long and none is under way.
constexpr std::chrono::milliseconds patience_where_none_can{20};

}  // namespace

/// The sleeps of one wait. From the progress since the last call, it estimates the time until all work is done, and
/// returns half of that. So the thread wakes a few times, the last time at about that moment. Used by one thread; reads
/// no clock.
class PollIntervals {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::nanoseconds shortest = std::chrono::microseconds(20),
                                            longest = std::chrono::milliseconds(1);

  /// How long to sleep from now on; `to_do` is the remaining work. The sleeps get longer while there is no progress.
  std::chrono::nanoseconds next(std::uint64_t to_do, Clock::time_point now) {
    const auto since = std::chrono::duration<double, std::nano>(now - last_look_);
    std::chrono::nanoseconds nap = 2 * nap_;
    if (looked_ && to_do < to_do_) {
      const double estimate = since.count() * static_cast<double>(to_do) / static_cast<double>(to_do_ - to_do);
      nap = std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(estimate / 2, 1e9)));
    }
    nap_ = looked_ ? std::clamp(nap, shortest, longest) : shortest;
    looked_ = true;
    to_do_ = to_do;
    last_look_ = now;
    return nap_;
  }

 private:
  bool looked_ = false;
  std::uint64_t to_do_ = 0;
  Clock::time_point last_look_;
  std::chrono::nanoseconds nap_ = shortest;
};

BackPressure::BackPressure(Core& core) : pending_bytes(core.options.max_pending_bytes), core_(core) {}

/// Decides how long a thread that is held back sleeps, and when it gives up.
class BackPressure::Patience {
 public:
  explicit Patience(Core& core)
      : core_(core),
        held_(core.options.on_held ? core.options.on_held() : nullptr),
        left_(core.front.ports.sums().left) {}

  /// Sleeps once; `to_do` is the remaining work.
  void nap(std::uint64_t to_do) {
    LookWhileWaiting::look();
    std::this_thread::sleep_for(intervals_.next(to_do, PollIntervals::Clock::now()));
  }
  /// Whether the thread must stop waiting.
  bool is_over() {
    const auto now = PollIntervals::Clock::now();
    const std::uint64_t left = core_.front.ports.sums().left;
    if (std::exchange(left_, left) != left) last_progress_ = next_look_ = now;
    if (now - last_progress_ > core_.options.push_patience) return is_told();
    if (now - next_look_ <= patience_where_none_can) return false;
    next_look_ = now;
    return core_.front.ports.mine().completes_ops || !core_.life.any_under_way();
  }

 private:
  bool is_told() {
    if (core_.pressure.by_ops.is_news()) {
      engine_log().warn(
          "windrow: {} ops are pending and none has finished for {} ms; a thread that was held back goes on, since "
          "they "
          "may wait for it (EngineOptions::push_patience)",
          core_.front.ports.sums().pending,
          std::chrono::duration_cast<std::chrono::milliseconds>(core_.options.push_patience).count());
    }
    return true;
  }

  Core& core_;
  const std::shared_ptr<void> held_;  ///< of EngineOptions::on_held
  std::uint64_t left_;                ///< the number of ops that had finished at the last call
  PollIntervals intervals_;
  PollIntervals::Clock::time_point last_progress_ = PollIntervals::Clock::now(), next_look_ = last_progress_;
};

void BackPressure::hold_back(Port& port) {
  const std::uint64_t most = core_.options.max_pending_ops;
  port.pushes_to_look = static_cast<int>(std::clamp<std::uint64_t>(most / 4, 1, pushes_between_looks));
  if (Running::innermost() != nullptr) return;
  // Does not count waits, which also represent issued ops that keep their captures.
  const auto count = [this] {
    const Ports::Sums sums = core_.front.ports.sums();
    return sums.pending - sums.waits;
  };
  std::uint64_t pending = count();
  if (pending <= std::max(most, port.allowance)) return;
  core_.front.ports.hand_over();
  const ThreadQueue::Waiter place(by_ops);
  for (Patience patience(core_); pending > most / 2 || !place.is_first(); pending = count()) {
    patience.nap(std::max(pending, most / 2 + 1) - most / 2);
    if (patience.is_over()) {
      port.allowance = count() + most;
      return;
    }
  }
  port.allowance = 0;
}

PendingBytes::Share BackPressure::take_bytes(std::uint64_t bytes) {
  if (bytes == 0) return {};
  if (Running::innermost() != nullptr) return pending_bytes.take(bytes);
  // Queues behind other held threads even if there is room; otherwise small pushes would take the room for which a
  // large one waits.
  if (!by_bytes.any()) {
    if (auto share = pending_bytes.try_take(bytes)) return std::move(*share);
  }
  core_.front.ports.hand_over();
  const ThreadQueue::Waiter place(by_bytes);
  for (Patience patience(core_); !patience.is_over();) {
    patience.nap(pending_bytes.too_many());
    if (!place.is_first()) continue;
    if (auto share = pending_bytes.try_take_again(bytes)) return std::move(*share);
  }
  return pending_bytes.take(bytes);
}

}  // namespace windrow
