// Streams of work. Each has a thread; what orders work of several streams is a graph of tasks.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cuda/plugin/host_team.h"

namespace windrow::fake {

/// For each stream, the number of its last task that is known to be done: a vector clock.
class Clock {
 public:
  bool has(std::size_t stream, std::uint64_t number) const {
    return stream < known_.size() && known_[stream] >= number;
  }
  void set(std::size_t stream, std::uint64_t number) {
    if (stream >= known_.size()) known_.resize(stream + 1, 0);
    known_[stream] = number;
  }
  void join(const Clock& other) {
    if (known_.size() < other.known_.size()) known_.resize(other.known_.size(), 0);
    for (std::size_t i = 0; i < other.known_.size(); ++i) known_[i] = std::max(known_[i], other.known_[i]);
  }

 private:
  std::vector<std::uint64_t> known_;
};

struct Task;
using TaskPtr = std::shared_ptr<Task>;

struct Task {
  std::string name;
  std::function<void()> work;     // may be empty
  const void* library = nullptr;  // whose code the work runs, if it was loaded at run time
  int device = 0;
  std::size_t stream = 0;    // number of the stream
  std::uint64_t number = 0;  // within the stream, from 1
  std::vector<TaskPtr> after;
  Clock clock;  // of all that is done when the task is
  bool wanted = false;
  bool done = false;
  std::chrono::steady_clock::time_point done_at{};
};

/// Work that a stream has captured instead of doing it.
struct Captured {
  std::string name;
  std::vector<cuda::Access> accesses;
  std::function<void()> work;
  const void* library = nullptr;
  bool together = false;  // its teams run at the same time
};
using Capture = std::vector<Captured>;

/// Members are called with the world's mutex.
class Stream {
 public:
  Stream(int device, bool blocking);
  ~Stream() = default;

  int device() const { return device_; }
  std::size_t number() const { return number_; }
  bool blocking() const { return blocking_; }
  /// The last task, or null. It may be done.
  const TaskPtr& last() const { return last_; }
  const TaskPtr& issue(std::string name, std::function<void()> work, std::vector<TaskPtr> after = {});
  /// Whether work that is not done runs code of that library.
  bool uses(const void* library) const {
    return std::ranges::any_of(tasks_, [&](const TaskPtr& task) { return task->library == library; });
  }
  /// Looks whether the next task may run.
  void wake();
  /// Ends the thread when all is done. Unlocks the mutex meanwhile.
  void end(std::unique_lock<std::mutex>& lock);

  /// What is issued goes here while there is one.
  std::optional<Capture> capture;

 private:
  void serve();
  bool may_run() const;

  const int device_;
  const bool blocking_;
  const std::size_t number_;
  std::uint64_t issued_ = 0;
  std::deque<TaskPtr> tasks_;
  bool running_ = false;
  std::condition_variable changed_;
  TaskPtr last_;
  std::minstd_rand random_;
  bool ending_ = false;
  std::thread thread_;
};

/// Tasks may run now that could not before.
void wake_all();
/// Lets a task and all that it is after run.
void want(const TaskPtr& task);
/// Blocks until the task is done, and notes that the host knows it. Null: at once.
void wait_for(const TaskPtr& task, std::unique_lock<std::mutex>& lock);

/// What an event stands for. Recording it anew changes nothing for those that wait already.
struct EventState {
  TaskPtr task;  // null: nothing before it
  std::chrono::steady_clock::time_point recorded_at{};
  int queries = 0;

  /// The task must be done.
  std::chrono::steady_clock::time_point reached_at() const {
    return task == nullptr ? recorded_at : std::max(recorded_at, task->done_at);
  }
};

}  // namespace windrow::fake
