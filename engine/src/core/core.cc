#include "core/core.h"

#include <algorithm>
#include <limits>

#include "diagnosis/engine_log.h"
#include "process/environment.h"
#include "process/exit.h"

namespace windrow {
namespace {

EngineOptions checked(EngineOptions options) {
  if (options.check) options.policy = Policy::serial;
  refuse_wrong_environment(options);
  if (options.workers < 1) {
    throw MisuseError("EngineOptions.workers = " + std::to_string(options.workers) + "; expected 1 or more");
  }
  if (options.max_pending_ops < 1) {
    throw MisuseError("EngineOptions.max_pending_ops = 0; expected 1 or more");
  }
  if (!DenormalsScope::can_flush()) options.denormals = Denormals::keep;
  if (options.max_pending_bytes == 0) options.max_pending_bytes = std::numeric_limits<std::uint64_t>::max();
  if (options.max_spare_threads < 0) {
    throw MisuseError("EngineOptions.max_spare_threads = " + std::to_string(options.max_spare_threads) +
                      "; expected 0 or more");
  }
  options.workers = std::min(options.workers, most_threads);
  options.max_spare_threads = std::min(options.max_spare_threads, most_threads);
  if (options.push_patience.count() < 0)
    throw MisuseError("EngineOptions.push_patience is negative; expected 0 or more");
  if (options.watchdog.count() < 0)
    throw MisuseError("EngineOptions.watchdog is negative; expected 0 for none, or more");
  return options;
}

std::uint32_t next_number() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

}  // namespace

Core::Core(EngineOptions given) : options(checked(std::move(given))), number(next_number()) {
  engine_log();
  if (!monitor.trace_path.empty()) monitor.start_trace({});
  WaitGraph::of_process().add_engine(*this);
  Forks::of_process().add(*this);
  watch_exit_of_this_thread();
}

Core::~Core() {
  link->end();
  Forks::of_process().remove(*this);
  WaitGraph::of_process().remove_engine(*this);
}

EngineStats Core::stats() const {
  const Ports::Sums sums = front.ports.sums();
  return {.pushed = sums.pushed,
          .pending = sums.pending - sums.waits,
          .pending_bytes = pressure.pending_bytes.sum(),
          .failed = back.failed,
          .skipped = back.skipped,
          .cancelled = back.cancelled,
          .waits = waits.calls,
          .waits_in_ops = waits.calls_in_ops,
          .spare_threads = static_cast<std::uint64_t>(back.policy->spares())};
}

Running* Core::frame_of_mine() const {
  Running* frame = Running::innermost();
  while (frame != nullptr && frame->core != this) frame = frame->outer;
  return frame;
}

}  // namespace windrow
