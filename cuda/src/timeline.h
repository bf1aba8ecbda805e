// Records when the device ran the work of a lane, for traces.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "library.h"
#include "windrow/engine/lane.h"

namespace windrow::cuda {

/// Encloses each call that issues work in two events of the CUDA runtime, which record when they are reached. An error
/// of an event stops the recording; it does not affect the work. Threads: any, except where said.
class Timeline {
 public:
  Timeline(const Plugin& cuda, int device) : cuda_(cuda), device_(device) {}
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// Drops what was recorded, and starts to record at most `most` pieces of work.
  void start(std::uint64_t most) noexcept;
  void stop() noexcept { on_ = false; }
  bool on() const { return on_; }

  // Before and after a call that issues work, by the thread that issues, and only while on().
  void begin(Queue* queue, const char* work) noexcept;
  void end(Queue* queue) noexcept;

  /// The recorded work that has finished.
  std::vector<DeviceWork> read();

 private:
  struct Open {
    std::string name;
    Event *begin, *end;  // `end` is null until end() is called
  };
  // Called with mutex_.
  Event* record(Queue* queue);
  void collect();
  void give_up() noexcept;

  const Plugin& cuda_;
  const int device_;
  std::atomic<bool> on_{false};
  std::mutex mutex_;  // guards what follows
  std::uint64_t room_ = 0;
  Event* origin_ = nullptr;
  std::chrono::steady_clock::time_point origin_time_;
  std::deque<Open> open_;
  std::vector<Event*> free_;
  std::vector<DeviceWork> done_;
};

}  // namespace windrow::cuda
