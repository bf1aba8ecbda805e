#include "process/exit.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "core/core.h"
#include "diagnosis/engine_log.h"
#include "windrow/engine/internal/process_exit.h"

namespace windrow {
namespace {

/// At the exit, how long engines wait for the next op to finish; and how long if nothing is under way.
constexpr std::chrono::seconds patience_at_exit{10};
constexpr std::chrono::milliseconds look_at_exit{20};

std::atomic<bool> resting{false};
std::atomic<std::thread::id> exiting{};  // written before `resting` is set

template <class F>
void for_each_engine(F&& f) noexcept try {
  for (const std::shared_ptr<CoreLink>& link : WaitGraph::of_process().links()) link->use(f);
} catch (const std::bad_alloc&) {
  // The engines end as their owners end.
}

void rest() noexcept {
  if (!resting.load()) exiting.store(std::this_thread::get_id());
  resting.store(true);
  for_each_engine([](Core& engine) { engine.life.rest_at_exit(); });
}

bool is_main_thread() { return ::syscall(SYS_gettid) == ::getpid(); }

struct ExitOfThread {
  ~ExitOfThread() {
    if (Running::innermost() != nullptr) {
      rest();
    } else if (is_main_thread()) {
      for_each_engine([](Core& engine) { engine.life.finish_at_exit(); });
    }
  }
};

}  // namespace

void rest_before_statics_end() noexcept { static_cast<void>(std::atexit(&rest)); }

void watch_exit_of_this_thread() noexcept {
  thread_local const ExitOfThread here;
  static_cast<void>(&here);
}

bool engines_rest() noexcept { return resting.load(std::memory_order_relaxed); }

void stay_unless_exiting() noexcept {
  while (exiting.load() != std::this_thread::get_id()) std::this_thread::sleep_for(std::chrono::hours(1));
}

void Life::finish_at_exit() noexcept try {
  if (unusable() || left_behind) return;
  using Clock = std::chrono::steady_clock;
  core_.front.ports.hand_over();
  const Ports::Sums begun = core_.front.ports.sums();
  const std::uint64_t enough = begun.left + begun.pending;  // others may push without pause
  std::uint64_t left = begun.left;
  for (auto progress = Clock::now(); left < enough && !core_.waits.wait_until_idle(Clock::now() + look_at_exit);) {
    const auto now = Clock::now();
    if (std::exchange(left, core_.front.ports.sums().left) != left) progress = now;
    if (now - progress < look_at_exit || (now - progress < patience_at_exit && any_under_way())) continue;
    engine_log().warn("windrow: at the exit of the process, an engine leaves {} ops that do not finish",
                      core_.front.ports.sums().pending);
    return;
  }
} catch (const std::exception&) {
  // No memory for a port or a message.
}

void Life::rest_at_exit() noexcept try {
  if (unusable() || left_behind) return;
  if (Running::innermost() == nullptr) finish_at_exit();
  left_behind = true;
  core_.back.detours |= Back::by_exit;
  if (core_.monitor.watchdog) core_.monitor.watchdog->stop();
  // Each thread that begins an op sets the op's stage before it reads the detours, and the search for the stage makes
  // all threads pass a fence in between.
  const auto runs_elsewhere = [](const OpRecord& op) {
    if (op.stage() != OpRecord::Stage::runs) return false;
    const Running* frame = Running::innermost();
    while (frame != nullptr && frame->op != &op) frame = frame->outer;
    return frame == nullptr;
  };
  const auto until = std::chrono::steady_clock::now() + patience_at_exit;
  while (std::chrono::steady_clock::now() < until && core_.front.any_pending(runs_elsewhere)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
} catch (const std::exception&) {
  // As above.
}

}  // namespace windrow
