// The state of the fake runtime, which one mutex guards.
#pragma once

#include <cstdlib>
#include <cstring>
#include <utility>

#include "checker.h"
#include "fake.h"
#include "memory.h"
#include "streams.h"

namespace windrow::fake {

struct Injected {
  std::uint64_t call = 0;  // 0: none
  int error = 0;
  bool lasts = false;
};

struct World {
  std::mutex mutex;
  std::condition_variable done;  // a task that a thread of the host waits for may be done
  int waiting = 0;               // threads of the host that do

  Options options;
  Counters counters;
  std::vector<std::string> reports;
  Injected injected;
  std::vector<bool> fail_next_work;  // by device
  bool held = false;                 // no work begins
  std::string held_at;               // no work with this in its name begins, unless empty
  std::vector<bool> contexts;        // by device: whether it has one
  std::vector<int> lost;             // by device: the error of all calls from now on, or 0

  std::vector<std::unique_ptr<TwiceMapped>> memories;  // by device
  Checker checker;
  std::vector<Stream*> streams;
  std::size_t streams_made = 0;

  void (*begin_allocating)() = nullptr;
  void (*end_allocating)() = nullptr;

  void report(std::string line) { reports.push_back(std::move(line)); }
};

World& world();

/// The device of the calling thread.
int& current_device();

/// A call of a function that can fail: takes the world's mutex.
class Call {
 public:
  Call() : lock(world().mutex) {
    if (world().begin_allocating != nullptr) world().begin_allocating();
  }
  ~Call() {
    if (world().end_allocating != nullptr) world().end_allocating();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Counts the call, and returns the error that it is to fail with, or 0.
  int begin() {
    World& w = world();
    ++w.counters.calls;
    if (const int lost = error_of_device(); lost != 0) return lost;
    if (w.injected.call == 0 || --w.injected.call > 0) return 0;
    if (w.injected.lasts) w.lost[static_cast<std::size_t>(current_device())] = w.injected.error;
    return w.injected.error;
  }

  /// The error with which the thread's device was lost, or 0.
  static int error_of_device() {
    const auto device = static_cast<std::size_t>(current_device());
    return device < world().lost.size() ? world().lost[device] : 0;
  }

  std::unique_lock<std::mutex> lock;
};

}  // namespace windrow::fake
