// Back-pressure on threads that push too far ahead, and push options that only some ops use.
#include <algorithm>
#include <thread>

#include "core/adorned.h"
#include "core/core.h"
#include "diagnosis/engine_log.h"
#include "graph/launch.h"
#include "wait/naps.h"

namespace windrow {
namespace {

/// The most pushes of a thread between two looks at the number of pending ops. Fewer if max_pending_ops is small.
constexpr std::uint64_t pushes_between_looks = 256;
/// A thread that is held back is released if no op finishes for this long and none is under way.
constexpr std::chrono::milliseconds patience_where_none_can{20};

}  // namespace

/// Decides how long a thread that is held back sleeps, and when it gives up.
class Core::Patience {
 public:
  explicit Patience(Core& core) : core_(core), left_(core.ports_.sums().left) {}

  /// Sleeps once; `to_do` is the amount of work that must still be done.
  void nap(std::uint64_t to_do) { std::this_thread::sleep_for(naps_.next(to_do, Naps::Clock::now())); }
  /// Whether the thread must stop waiting.
  bool is_over() {
    const auto now = Naps::Clock::now();
    const std::uint64_t left = core_.ports_.sums().left;
    if (std::exchange(left_, left) != left) last_progress_ = next_look_ = now;
    if (now - last_progress_ > core_.options.push_patience) return is_told();
    if (now - next_look_ <= patience_where_none_can) return false;
    next_look_ = now;
    return core_.ports_.mine().completes_ops || !core_.any_under_way();
  }

 private:
  bool is_told() {
    if (core_.held_back_.is_news()) {
      engine_log().warn(
          "windrow: {} ops are pending and none has finished for {} ms; a thread that was held back goes on, since "
          "they "
          "may wait for it (EngineOptions::push_patience)",
          core_.ports_.sums().pending,
          std::chrono::duration_cast<std::chrono::milliseconds>(core_.options.push_patience).count());
    }
    return true;
  }

  Core& core_;
  std::uint64_t left_;  ///< the number of ops that had finished at the last look
  Naps naps_;
  Naps::Clock::time_point last_progress_ = Naps::Clock::now(), next_look_ = last_progress_;
};

bool Core::any_pending(const std::function<bool(const OpRecord&)>& is) {
  bool found = false;
  const Ports::Stopped stopped(ports_);
  records_.for_each([&](OpRecord& op) {
    const OpId id = op.id();
    found |= id != 0 && is(op);
  });
  MutexLock lock(launches_mutex_);
  for (GraphLaunch* launch = launches_; launch != nullptr && !found; launch = launch->next) {
    for (const PlanNode& node : launch->plan().nodes()) {
      const OpRecord& op = launch->record(node.number);
      found |= !op.has_finished(launch->first_id + node.number) && is(op);
    }
  }
  return found;
}

bool Core::any_under_way() {
  if (policy_->ready() > 0) return true;
  const std::size_t count = has_ordered_ ? lanes() : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const LaneState& lane = lane_at(i);
    if (const Point last = lane.last(); last && !lane.ordered->reached(last)) return true;
  }
  return any_pending([](const OpRecord& op) {
    const OpRecord::Stage stage = op.stage();
    return stage != OpRecord::Stage::queued && stage != OpRecord::Stage::waits_inside;
  });
}

void Core::hold_back(Port& port) {
  const std::uint64_t most = options.max_pending_ops;
  port.pushes_to_look = static_cast<int>(std::clamp<std::uint64_t>(most / 4, 1, pushes_between_looks));
  if (Running::innermost() != nullptr) return;
  // Without waits, which also stand for ops that were issued on lanes and keep their captures.
  const auto count = [this] {
    const Ports::Sums sums = ports_.sums();
    return sums.pending - sums.waits;
  };
  std::uint64_t pending = count();
  if (pending <= std::max(most, port.allowance)) return;
  ports_.hand_over();
  const HeldBack::Place place(held_back_);
  for (Patience patience(*this); pending > most / 2 || !place.is_first(); pending = count()) {
    patience.nap(std::max(pending, most / 2 + 1) - most / 2);
    if (patience.is_over()) {
      port.allowance = count() + most;
      return;
    }
  }
  port.allowance = 0;
}

PendingBytes::Share Core::take_bytes(std::uint64_t bytes) {
  if (bytes == 0) return {};
  if (Running::innermost() != nullptr) return pending_bytes_.take(bytes);
  // Behind threads that are held back even if there is room, since otherwise small pushes would take the room that a
  // large one waits for.
  if (!held_back_by_bytes_.any()) {
    if (auto share = pending_bytes_.try_take(bytes)) return std::move(*share);
  }
  ports_.hand_over();
  const HeldBack::Place place(held_back_by_bytes_);
  for (Patience patience(*this); !patience.is_over();) {
    patience.nap(pending_bytes_.too_many());
    if (!place.is_first()) continue;
    if (auto share = pending_bytes_.try_take_again(bytes)) return std::move(*share);
  }
  return pending_bytes_.take(bytes);
}

template <class... Args>
Function<void(Args...)> Core::adorn(Function<void(Args...)>&& function, const PushOptions& how) {
  OpLimits limits;
  if (!how.run_always) limits = {how.stop, how.deadline};
  const bool captured = ports_.mine().busy == Port::Busy::capturing;
  return Adorned<Args...>{take_bytes(captured ? 0 : how.bytes), std::move(limits), std::move(function)};
}

template OpFunction Core::adorn(OpFunction&&, const PushOptions&);
template AsyncFunction Core::adorn(AsyncFunction&&, const PushOptions&);

}  // namespace windrow
