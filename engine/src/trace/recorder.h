// Records what an engine does while its trace is on, in one log for each thread.
//
// The recorder knows records and times, but no dependencies: what an op waited for is derived from the tickets of its
// accesses when the trace is read (trace/graph.h). So single ops that were never in a core can be recorded, too.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "record/ports.h"
#include "trace/log.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

/// What was recorded up to some moment. It contains everything that ended before that moment while the session was on.
struct Recording {
  struct Thread {
    const Slots* slots;
    TraceLog::Chunks chunks;
  };
  ClockReading start, end;
  std::vector<Thread> threads = {};
  std::vector<std::string> counters = {};  // names by number
  std::uint64_t left_out = 0;
  bool all_arrows = false;  // TraceOptions
};

/// A value that is recorded with the number of pending ops; see Trace::add_counter().
struct TraceCounter {
  std::string name;
  std::function<std::optional<std::uint64_t>()> read;
};

/// Any thread may call the members; those that take a port are called by the port's thread.
class TraceRecorder {
 public:
  void start(const TraceOptions& options) WINDROW_EXCLUDES(mutex_);
  void stop() WINDROW_EXCLUDES(mutex_);
  bool on() const { return on_.load(std::memory_order_acquire); }
  /// The limit that was given at the last start.
  std::uint64_t max_ops() const { return max_ops_.load(std::memory_order_relaxed); }
  Recording read() const WINDROW_EXCLUDES(mutex_);
  void add(TraceCounter counter) WINDROW_EXCLUDES(mutex_);
  /// The counters that each engine has, by number; those of add() follow.
  static constexpr std::array engine_counters{"pending ops", "ready ops", "pending bytes"};
  /// Records the counters at a moment, those of the engine with these values.
  void record_counters(Port& port, Ticks now, std::array<std::uint64_t, engine_counters.size()> of_engine)
      WINDROW_EXCLUDES(mutex_);

  /// Called while the trace is on: an op begins on this thread, which has taken one of `slots`. Returns the begin of
  /// the op, which is never 0.
  Ticks begin(Port& port, const Slots* slots) {
    if (port.trace.log == nullptr || (slots != nullptr && port.trace.log->slots != slots)) add_log(port, slots);
    return now_in_ticks();
  }

  /// Records anything. If the record has an OpInfo, that must have a lane. An op's dependencies are derived from its
  /// accesses: the tickets of one variable must have no gaps.
  void record(Port& port, TraceRecord record, std::span<const VarPlace> accesses = {}) {
    record.accesses = static_cast<std::uint32_t>(accesses.size());
    append(port, record, [&](std::size_t i) { return accesses[i]; });
  }
  /// Records an op that has not yet left its variables, or a wait.
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

  // Written under mutex_. A start writes them in this order, the last two by release stores, whose partners are the
  // acquire loads that see them.
  std::atomic<std::uint64_t> max_ops_{0};
  std::atomic<std::uint32_t> session_{0};
  std::atomic<bool> on_{false};

  mutable Mutex mutex_;
  ClockReading start_ WINDROW_GUARDED_BY(mutex_), stop_ WINDROW_GUARDED_BY(mutex_);
  bool all_arrows_ WINDROW_GUARDED_BY(mutex_) = false;
  std::deque<TraceLog> logs_ WINDROW_GUARDED_BY(mutex_);  // never shrinks
  // Grows only, and its elements do not change, so they are read without the lock.
  std::deque<TraceCounter> counters_ WINDROW_GUARDED_BY(mutex_);
  std::atomic<std::size_t> counter_count_{0};  // written under mutex_, after the element
};

}  // namespace windrow
