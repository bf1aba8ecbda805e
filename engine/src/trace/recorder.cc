#include "trace/recorder.h"

namespace windrow {

void TraceRecorder::start(const TraceOptions& options) {
  MutexLock lock(mutex_);
  start_ = ClockReading::now();
  all_arrows_ = options.all_arrows;
  max_ops_.store(options.max_ops_per_thread, std::memory_order_relaxed);
  session_.store(session_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  on_.store(true, std::memory_order_release);
}

void TraceRecorder::stop() {
  MutexLock lock(mutex_);
  if (!on()) return;
  on_.store(false, std::memory_order_relaxed);
  stop_ = ClockReading::now();
}

Recording TraceRecorder::read() const {
  MutexLock lock(mutex_);
  // The end is fixed before any log is read. So each op that ended by then has been recorded, or its thread is about to
  // record it; in the latter case nothing that depends on the op has ended.
  Recording recording{.start = start_, .end = on() ? ClockReading::now() : stop_};
  recording.all_arrows = all_arrows_;
  recording.counters.assign(engine_counters.begin(), engine_counters.end());
  for (const TraceCounter& counter : counters_) recording.counters.push_back(counter.name);
  const std::uint32_t session = session_.load(std::memory_order_relaxed);
  if (session == 0) return recording;
  for (const TraceLog& log : logs_) {
    TraceLog::Read read = log.read(session);
    recording.left_out += read.left_out;
    recording.threads.push_back({log.slots, std::move(read.chunks)});
  }
  return recording;
}

void TraceRecorder::add(TraceCounter counter) {
  MutexLock lock(mutex_);
  counters_.push_back(std::move(counter));
  counter_count_.store(counters_.size(), std::memory_order_release);
}

void TraceRecorder::record_counters(Port& port, Ticks now,
                                    std::array<std::uint64_t, engine_counters.size()> of_engine) {
  const auto record_one = [&](std::size_t number, std::uint64_t value) {
    record(port, {.kind = TraceRecord::Kind::counter, .begin = now, .end = number, .id = value});
  };
  for (std::size_t i = 0; i < of_engine.size(); ++i) record_one(i, of_engine[i]);
  // acquire: pairs with the release in add().
  const std::size_t count = counter_count_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    const TraceCounter* counter = nullptr;
    {
      MutexLock lock(mutex_);
      counter = &counters_[i];
    }
    if (const std::optional<std::uint64_t> value = counter->read()) record_one(of_engine.size() + i, *value);
  }
}

void TraceRecorder::add_log(Port& port, const Slots* slots) noexcept try {
  MutexLock lock(mutex_);
  port.trace.log = &logs_.emplace_back(slots);
} catch (const std::bad_alloc&) {
  port.trace.log = nullptr;
}

}  // namespace windrow
