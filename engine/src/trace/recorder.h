// Records what an engine does, one log for each thread, while its trace is on.
//
// It knows records and times, and no dependency: what an op waited for is found in the tickets of its accesses when the
// trace is read (trace/graph.h). So ops that no core has seen may be recorded too, one by one.
#pragma once

#include <atomic>
#include <deque>
#include <span>
#include <utility>

#include "core/ports.h"
#include "trace/log.h"
#include "windrow/engine/mutex.h"

namespace windrow {

/// What was recorded up to some moment. Whatever ended before that moment is in it, if its session was on.
struct Recording {
  struct Thread {
    const Slots* slots;
    TraceLog::Chunks chunks;
  };
  ClockReading start, end;
  std::vector<Thread> threads = {};
  std::uint64_t left_out = 0;
};

/// Members may be called by any thread; those that take a port by its thread.
class TraceRecorder {
 public:
  void start(const TraceOptions& options) WINDROW_EXCLUDES(mutex_);
  void stop() WINDROW_EXCLUDES(mutex_);
  bool on() const { return on_.load(std::memory_order_acquire); }
  Recording read() const WINDROW_EXCLUDES(mutex_);

  /// The trace is on: an op begins on this thread, which has taken one of those slots. Never 0.
  Ticks begin(Port& port, const Slots* slots) {
    if (port.trace.log == nullptr || (slots != nullptr && port.trace.log->slots != slots)) add_log(port, slots);
    const Ticks last = std::exchange(port.trace.last_end, 0);
    return last > started_.load(std::memory_order_relaxed) ? last : now_in_ticks();
  }

  /// Records anything. What has an OpInfo needs one with a lane. An op's accesses tell what it depends on: the tickets
  /// of one variable must have no gaps.
  void record(Port& port, TraceRecord record, std::span<const VarPlace> accesses = {}) {
    record.accesses = static_cast<std::uint32_t>(accesses.size());
    append(port, record, [&](std::size_t i) { return accesses[i]; });
  }
  /// An op that has not yet left its variables, or a wait.
  void record(Port& port, OpRecord& op, TraceRecord record) {
    record.retires = op.ends_variable_for_good();
    record.accesses = static_cast<std::uint32_t>(op.touches().size());
    record.id = op.id();
    record.info = &op.info();
    append(port, record, [&](std::size_t i) { return place_of(op, i); });
  }

  // See fork.h.
  void each_mutex(EachMutex f) WINDROW_UNCHECKED_LOCKING {
    f(mutex_, [&]() WINDROW_UNCHECKED_LOCKING {
      for (TraceLog& log : logs_) log.each_mutex(f);
    });
  }

 private:
  template <class AccessOf>
  void append(Port& port, const TraceRecord& record, AccessOf&& access_of) {
    if (port.trace.log == nullptr) add_log(port, nullptr);
    TraceLog* const log = port.trace.log;
    if (log == nullptr) return;
    const std::uint32_t session = session_.load(std::memory_order_acquire);
    if (log->session() != session) log->begin({session, max_ops_.load(std::memory_order_relaxed)});
    log->append(record, access_of);
  }
  /// Gives the port a log, unless there is no memory.
  void add_log(Port& port, const Slots* slots) noexcept WINDROW_EXCLUDES(mutex_);

  // Written under mutex_, in this order; the last two with a release that the load which sees them acquires.
  std::atomic<Ticks> started_{0};
  std::atomic<std::uint64_t> max_ops_{0};
  std::atomic<std::uint32_t> session_{0};
  std::atomic<bool> on_{false};

  mutable Mutex mutex_;
  ClockReading start_ WINDROW_GUARDED_BY(mutex_), stop_ WINDROW_GUARDED_BY(mutex_);
  std::deque<TraceLog> logs_ WINDROW_GUARDED_BY(mutex_);  // never shrinks
};

}  // namespace windrow
