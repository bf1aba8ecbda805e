// A simulated device: ordered lanes, each with a thread that runs the issued work later.
//
// Points use a ring of two events, which are reused as a CUDA lane would reuse its events. Each event stores the serial
// that it was last passed with, and a wait compares this generation.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "windrow/engine/lane.h"

namespace windrow::testing {

class SimLane : public Lane {
 public:
  /// With a seed, the lane sometimes takes longer, at random.
  explicit SimLane(std::string name, int device = 1, unsigned seed = 0)
      : name_(std::move(name)), device_(device), slow_(seed != 0), random_(seed) {
    thread_ = std::thread([this] { serve(); });
  }
  ~SimLane() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// Whether work runs on a lane that has failed.
  enum class Runs { unless_failed, always };
  /// Issues work, as a kernel launch would. It runs after all work that was issued before. If it throws, the lane fails
  /// permanently.
  void launch(std::function<void()> work, Runs runs = Runs::unless_failed) {
    enqueue({.function = std::move(work), .runs = runs});
  }

  /// A lane that is held runs nothing until let_go().
  void hold() {
    std::lock_guard lock(mutex_);
    held_ = true;
  }
  void let_go() {
    {
      std::lock_guard lock(mutex_);
      held_ = false;
    }
    changed_.notify_all();
  }
  int waits_issued() const { return waits_issued_; }
  /// The number of sections that were opened, and of those that are open.
  int sections() const { return sections_; }
  int open_sections() const { return open_sections_; }
  /// The next leave() finds this error.
  void fail_section(std::exception_ptr error) { section_error_ = std::move(error); }
  bool is_closed() const { return closed_; }

  std::string_view name() const override { return name_; }
  int device() const override { return device_; }

  void enter() noexcept override {
    ++sections_;
    ++open_sections_;
  }
  std::exception_ptr leave() noexcept override {
    --open_sections_;
    return std::exchange(section_error_, nullptr);
  }
  void close() noexcept override { closed_ = true; }

  Point record() noexcept override {
    std::lock_guard lock(mutex_);
    const std::uint64_t serial = ++recorded_;
    work_.push_back({.serial = serial});
    changed_.notify_all();
    return {this, serial};
  }

  bool reached(Point point) const noexcept override {
    std::lock_guard lock(mutex_);
    return last_passed_ >= point.serial;
  }

  bool can_wait_for(const Lane& other) const noexcept override {
    return dynamic_cast<const SimLane*>(&other) != nullptr && other.device() == device_;
  }

  void wait(Point point, IfFailed if_failed) noexcept override {
    ++waits_issued_;
    enqueue({.awaited = static_cast<SimLane*>(point.lane), .serial = point.serial, .if_failed = if_failed});
  }

  void start_trace(std::uint64_t most) noexcept override {
    std::lock_guard lock(mutex_);
    traced_.clear();
    most_traced_ = most;
  }
  void stop_trace() noexcept override {
    std::lock_guard lock(mutex_);
    most_traced_ = 0;
  }
  std::vector<DeviceWork> traced() override {
    std::lock_guard lock(mutex_);
    return traced_;
  }

  void when_reached(Point point, Reached callback) noexcept override {
    std::unique_lock lock(mutex_);
    if (!passed(point.serial)) {
      callbacks_.emplace(point.serial, std::move(callback));
      return;
    }
    const std::exception_ptr error = failed_at_ != 0 && point.serial >= failed_at_ ? error_ : nullptr;
    lock.unlock();
    callback(error);
  }

 private:
  struct Work {
    std::function<void()> function = {};
    SimLane* awaited = nullptr;  // if set: waits for the point `serial` of that lane
    std::uint64_t serial = 0;    // without function and `awaited`: reaches this lane's point
    IfFailed if_failed = IfFailed::fail;
    Runs runs = Runs::unless_failed;
  };

  bool passed(std::uint64_t serial) const { return events_[serial % events_.size()] >= serial; }

  void enqueue(Work work) {
    {
      std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_all();
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || (!held_ && !work_.empty()); });
      if (work_.empty() || held_) return;
      Work work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      if (slow_ && random_() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 100));
      const auto begin = std::chrono::steady_clock::now();
      if (work.function) error = execute(work);
      const auto end = std::chrono::steady_clock::now();
      if (work.awaited != nullptr) error = work.awaited->await(work.serial);
      if (work.if_failed == IfFailed::go_on) error = nullptr;
      lock.lock();
      if (work.function && traced_.size() < most_traced_) traced_.push_back({"work", begin, end});
      if (error && !error_) {
        error_ = error;
        failed_at_ = last_passed_ + 1;
      }
      if (!work.function && work.awaited == nullptr) reach(work.serial, lock);
    }
  }

  std::exception_ptr execute(const Work& work) {
    if (error_ && work.runs == Runs::unless_failed) return error_;  // only this thread writes it
    try {
      work.function();
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  /// Called by the thread of another lane. Blocks until the event of the point has been passed.
  std::exception_ptr await(std::uint64_t serial) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return passed(serial) || stopping_; });
    return failed_at_ != 0 && serial >= failed_at_ ? error_ : nullptr;
  }

  void reach(std::uint64_t serial, std::unique_lock<std::mutex>& lock) {
    events_[serial % events_.size()] = last_passed_ = serial;
    std::vector<Reached> due;
    while (!callbacks_.empty() && callbacks_.begin()->first <= serial) {
      due.push_back(std::move(callbacks_.begin()->second));
      callbacks_.erase(callbacks_.begin());
    }
    const std::exception_ptr error = error_;
    changed_.notify_all();
    lock.unlock();
    for (Reached& callback : due) callback(error);
    lock.lock();
  }

  const std::string name_;
  const int device_;
  const bool slow_;
  std::minstd_rand random_;  // belongs to the lane's thread
  std::atomic<int> waits_issued_{0}, sections_{0}, open_sections_{0};
  std::atomic<bool> closed_{false};
  std::exception_ptr section_error_;  // belongs to the thread that issues
  mutable std::mutex mutex_;          // guards all members below; the lane's own thread may read error_ without it
  std::condition_variable changed_;
  std::deque<Work> work_;
  std::multimap<std::uint64_t, Reached> callbacks_;
  std::uint64_t recorded_ = 0;
  std::uint64_t last_passed_ = 0;
  std::array<std::uint64_t, 2> events_{};  // by serial: the generation with which each was last passed
  std::uint64_t failed_at_ = 0;
  std::exception_ptr error_;
  bool held_ = false;
  std::vector<DeviceWork> traced_;
  std::uint64_t most_traced_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace windrow::testing
