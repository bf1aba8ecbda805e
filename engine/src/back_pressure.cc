// What a push asks for beyond running a function, and threads that are held back since they push too far ahead.
#include <thread>

#include "adorned.h"
#include "core.h"
#include "naps.h"

namespace windrow {
namespace {

/// A thread that has pushed so many ops looks how many are pending.
constexpr int pushes_between_looks = 256;
/// Who is held back is let go if no op finishes for so long, since it may be the one that the ops wait for.
constexpr std::chrono::milliseconds patience_without_progress{20};

/// Of a thread that is held back.
class Patience {
 public:
  /// `left` counts the ops that have finished.
  explicit Patience(std::uint64_t left) : left_(left) {}

  /// While so much is to be done.
  void nap(std::uint64_t to_do) { std::this_thread::sleep_for(naps_.next(to_do, Naps::Clock::now())); }
  /// Whether it is in vain to go on.
  bool without_progress(std::uint64_t left) {
    const auto now = Naps::Clock::now();
    if (left != left_) last_progress_ = now;
    left_ = left;
    return now - last_progress_ > patience_without_progress;
  }

 private:
  std::uint64_t left_;
  Naps naps_;
  Naps::Clock::time_point last_progress_ = Naps::Clock::now();
};

}  // namespace

void Core::hold_back(Port& port) {
  port.pushes_to_look = pushes_between_looks;
  if (Running::innermost() != nullptr) return;
  const std::uint64_t most = options.max_pending_ops;
  Ports::Sums sums = ports_.sums();
  if (sums.pending <= std::max(most, port.allowance)) return;
  policy_->hand_over();
  Patience patience(sums.left);
  while (sums.pending > most / 2) {
    patience.nap(sums.pending - most / 2);
    sums = ports_.sums();
    if (patience.without_progress(sums.left)) {
      port.allowance = sums.pending + most;
      return;
    }
  }
  port.allowance = 0;
}

PendingBytes::Share Core::take_bytes(std::uint64_t bytes) {
  if (bytes == 0) return {};
  if (Running::innermost() != nullptr) return pending_bytes_.take(bytes);
  if (auto share = pending_bytes_.try_take(bytes)) return std::move(*share);
  policy_->hand_over();
  for (Patience patience(ports_.sums().left); !patience.without_progress(ports_.sums().left);) {
    patience.nap(pending_bytes_.too_many());
    if (auto share = pending_bytes_.try_take_again(bytes)) return std::move(*share);
  }
  return pending_bytes_.take(bytes);
}

template <class... Args>
Function<void(Args...)> Core::adorn(Function<void(Args...)>&& function, const PushOptions& how) {
  std::stop_token stop = how.run_always ? std::stop_token() : how.stop.token();
  const bool captured = ports_.mine().busy == Port::Busy::capturing;
  return Adorned<Args...>{take_bytes(captured ? 0 : how.bytes), std::move(stop), std::move(function)};
}

template OpFunction Core::adorn(OpFunction&&, const PushOptions&);
template AsyncFunction Core::adorn(AsyncFunction&&, const PushOptions&);

}  // namespace windrow
