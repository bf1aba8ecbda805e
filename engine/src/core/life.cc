#include "core/life.h"

#include <algorithm>
#include <thread>

#include "core/core.h"
#include "diagnosis/engine_log.h"
#include "policy/slots_free.h"
#include "process/exit.h"

namespace windrow {
namespace {

/// For a thread that ends an engine inside an op of another engine: what to do if no thread would be left for the other
/// engine's ops. A piece of a loop keeps its slot, since its op cannot continue without the piece.
SlotsFree::IfNobodyIsLeft if_nobody_is_left() {
  const Running* const frame = Running::innermost();
  return frame != nullptr && frame->in_piece ? SlotsFree::IfNobodyIsLeft::keep_them : SlotsFree::IfNobodyIsLeft::refuse;
}

}  // namespace

bool Life::gives_up() const { return (core_.back.detours & Back::by_end) != 0; }

void Life::check_phase(Phase now, const OpInfo& about) const {
  if (now == Phase::draining && core_.frame_of_mine() != nullptr) return;
  throw MisuseError("push of " + site(about) + " after shutdown of its engine");
}

bool Life::any_under_way() {
  if (core_.back.policy->ready() > 0) return true;
  const std::size_t count = core_.back.has_ordered() ? core_.lanes.count() : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const LaneState& lane = core_.lanes.lane_at(i);
    if (const Point last = lane.last(); last && !lane.ordered->reached(last)) return true;
  }
  return core_.front.any_pending([](const OpRecord& op) {
    const OpRecord::Stage stage = op.stage();
    return stage != OpRecord::Stage::queued && stage != OpRecord::Stage::waits_inside;
  });
}

void Life::refuse_inside(const char* call) const {
  if (const Running* frame = core_.frame_of_mine()) {
    throw MisuseError(call + (" inside " + site(frame->op->info())) + " would wait for that op itself");
  }
}

void Life::shutdown() {
  if (fork_gate.unusable()) return;
  refuse_inside("shutdown");
  const SlotsFree slots(if_nobody_is_left());  // this may be called inside an op of another engine
  MutexLock lock(shutdown_mutex);
  shut_down(std::nullopt);
}

bool Life::shutdown_for(std::chrono::nanoseconds patience, const std::function<void(std::string)>& abort) {
  if (patience < patience.zero()) {
    throw MisuseError("shutdown_for: " + std::to_string(patience.count()) + " ns; expected 0 or more");
  }
  if (fork_gate.unusable()) return false;
  refuse_inside("shutdown_for");
  const SlotsFree slots(if_nobody_is_left());
  bool ended = false;
  std::exception_ptr error;  // the first error; all steps are taken even if earlier ones failed
  const auto attempt = [&](auto&& step) {
    try {
      step();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  attempt([&] { ended = shut_down_in_time(patience); });
  if (ended) return true;
  core_.back.detours |= Back::by_end;
  std::string pending;
  attempt([&] { pending = core_.monitor.describe_pending(); });
  attempt([&] {
    if (abort) return abort(std::move(pending));
    engine_log().warn("windrow: shutdown has waited {} ms, and calls off what has not begun; {}",
                      std::chrono::duration_cast<std::chrono::milliseconds>(patience).count(), pending);
  });
  attempt([&] { ended = shut_down_in_time(patience); });
  left_behind = !ended;
  if (error) std::rethrow_exception(error);
  return ended;
}

/// The same for a thread that must not wait longer than `patience`.
bool Life::shut_down_in_time(std::chrono::nanoseconds patience) {
  const Deadline deadline = deadline_after(patience);
  while (!shutdown_mutex.try_lock()) {  // another thread waits in shutdown()
    if (has_passed(deadline)) return phase == Phase::stopped;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const MutexLock lock(shutdown_mutex, MutexLock::Held{});
  return shut_down(deadline);
}

bool Life::shut_down(Deadline deadline) {
  if (phase == Phase::stopped) return true;
  do {
    enter_phase(Phase::draining);
    if (!drain(deadline)) return false;
    enter_phase(Phase::stopped);
  } while (core_.front.ports.sums().pending != 0);  // true if a retire was pushed in between
  while (visitors != 0) std::this_thread::yield();  // a short wait: each visitor is about to leave
  core_.back.policy->stop();
  if (core_.monitor.watchdog) core_.monitor.watchdog->stop();
  return true;
}

void Life::enter_phase(Phase next) {
  phase = next;
  const Ports::Stopped stopped(
      core_.front.ports);  // pushes that were under way have entered; later ones see the new phase
}

bool Life::drain(Deadline deadline) {
  for (;;) {
    const auto notice = std::chrono::steady_clock::now() + shutdown_notice;
    if (core_.waits.wait_until_idle(deadline ? std::min(*deadline, notice) : notice)) break;
    if (has_passed(deadline)) return false;
    engine_log().warn("windrow: shutdown still waits for {} pending ops", core_.front.ports.sums().pending);
  }
  const std::size_t count = core_.lanes.count();
  for (std::size_t i = 0; i < count; ++i) {
    const Point last = core_.lanes.lane_at(i).last();
    if (!last) continue;
    std::exception_ptr failure;  // which waits report
    if (!deadline) {
      core_.waits.reach(last);
    } else if (!core_.waits.wait_until_reached(last, deadline, failure)) {
      return false;
    }
  }
  return true;
}

bool Life::end() noexcept {
  if (fork_gate.unusable()) return false;
  bool ended = false;
  try {
    if (left_behind) {
      const SlotsFree slots(if_nobody_is_left());
      ended = shut_down_in_time(std::chrono::nanoseconds::zero());  // ops that were left behind may have ended since
    } else {
      shutdown();
      ended = true;
    }
    if (!ended && !engines_rest()) {
      engine_log().error("windrow: an engine is leaked, since ops are pending for which shutdown_for() has not waited");
    }
  } catch (const std::exception& e) {
    engine_log().error("windrow: an engine cannot end and is leaked: {}", e.what());
  }
  if (!ended) leave_behind();
  core_.monitor.save_trace_for_environment();
  try {
    for (const FailurePtr& failure : core_.back.failures.unreported()) {
      engine_log().warn("windrow: nobody waited for this: {}", failure->describe());
    }
  } catch (const std::exception& e) {
    engine_log().error("windrow: a failure nobody waited for cannot be described: {}", e.what());
  }
  return ended;
}

void Life::leave_behind() noexcept {
  left_behind = true;
  core_.back.detours |= Back::by_end | Back::by_leak;
  if (core_.monitor.watchdog) core_.monitor.watchdog->stop();
}

}  // namespace windrow
