// Memory that is refused while ops run on lanes and wait for their points.
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "tests/engine/fault_trial.h"

namespace windrow::testing {
namespace {

/// An ordered lane that never runs out of memory itself. Its thread reaches one point after the other.
class ShelteredLane final : public Lane {
 public:
  struct Nature {
    std::uint64_t fails_at = ~std::uint64_t{0};  ///< from this point on it is failed
    std::chrono::microseconds step{0};           ///< what each point takes
    bool can_wait = false;                       ///< for lanes of this class
  };
  explicit ShelteredLane(const Nature& nature) : nature_(nature), thread_([this] { serve(); }) {}
  ~ShelteredLane() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  std::string_view name() const override { return "sheltered"; }
  int device() const override { return 1; }
  Point record() noexcept override {
    std::lock_guard lock(mutex_);
    ++recorded_;
    changed_.notify_all();
    return {this, recorded_};
  }
  bool reached(Point point) const noexcept override {
    std::lock_guard lock(mutex_);
    return reached_ >= point.serial;
  }
  bool can_wait_for(const Lane&) const noexcept override { return nature_.can_wait; }
  void wait(Point point, IfFailed) noexcept override {
    const faults::Sheltered not_tested;
    std::lock_guard lock(mutex_);
    waits_.emplace(recorded_ + 1, point);
  }
  /// Whether it has reached all points.
  bool is_idle() {
    std::lock_guard lock(mutex_);
    return reached_ == recorded_;
  }
  void when_reached(Point point, Reached callback) noexcept override {
    const faults::Sheltered not_tested;
    std::unique_lock lock(mutex_);
    if (reached_ < point.serial) {
      callbacks_.emplace(point.serial, std::move(callback));
      return;
    }
    lock.unlock();
    call(callback, point.serial);
  }

 private:
  void serve() {
    const faults::Sheltered not_tested;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || reached_ < recorded_; });
      if (reached_ == recorded_) return;
      lock.unlock();
      std::this_thread::sleep_for(nature_.step);
      lock.lock();
      for (; !waits_.empty() && waits_.begin()->first <= reached_ + 1; waits_.erase(waits_.begin())) {
        const Point awaited = waits_.begin()->second;
        lock.unlock();
        static_cast<ShelteredLane*>(awaited.lane)->await(awaited.serial);
        lock.lock();
      }
      ++reached_;
      changed_.notify_all();
      while (!callbacks_.empty() && callbacks_.begin()->first <= reached_) {
        const auto due = callbacks_.extract(callbacks_.begin());
        lock.unlock();
        call(due.mapped(), due.key());
        lock.lock();
      }
    }
  }
  void await(std::uint64_t serial) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_ >= serial; });
  }
  void call(const Reached& callback, std::uint64_t serial) const {
    const faults::Exposed tested;
    callback(serial >= nature_.fails_at ? error_ : nullptr);
  }

  const Nature nature_;
  const std::exception_ptr error_ = std::make_exception_ptr(Error("the lane failed"));
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<std::uint64_t, Reached> callbacks_;
  std::multimap<std::uint64_t, Point> waits_;  // by the point before which they are awaited
  std::uint64_t recorded_ = 0, reached_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

class LaneFault : public EveryFault {
 protected:
  static EngineOptions options() { return {.policy = policy(), .workers = 2}; }

  /// Two ordered lanes, that wait for each other on the host, and a host lane.
  static void run(Trial& trial, std::uint64_t fails_at) {
    std::array<LaneId, 3> lanes;
    std::array<bool, 3> known;
    for (std::size_t i = 0; i < 2; ++i) {
      std::shared_ptr<ShelteredLane> lane;
      {
        const faults::Sheltered not_tested;
        lane = std::make_shared<ShelteredLane>(ShelteredLane::Nature{.fails_at = fails_at});
      }
      known[i] = attempt([&] { lanes[i] = trial.engine.add_lane(lane); });
    }
    known[2] = attempt([&] { lanes[2] = trial.engine.add_lane(HostLane{.name = "copies"}); });
    const Var x = trial.new_var(), y = trial.new_var(), only_read = trial.new_var();
    for (int round = 0; round < 4; ++round) {
      for (std::size_t i = 0; i < 3; ++i) {
        if (!known[i]) continue;
        attempt([&] { trial.engine.push([held = Captured()] {}, {mutate(x)}, {.lane = lanes[i]}); });
        attempt([&] { trial.engine.push([held = Captured()] {}, {read(x), mutate(y)}, {.lane = lanes[i]}); });
        attempt([&] { trial.engine.push([held = Captured()] {}, {read(only_read)}, {.lane = lanes[i]}); });
        attempt([&] { trial.engine.push([held = Captured()] {}, {read(y)}); });
      }
      attempt([&] { trial.engine.push([held = Captured()] {}, {read(x), mutate(y)}); });
    }
    attempt([&] { trial.engine.wait({read(x), mutate(y)}); });
    attempt([&] { trial.engine.wait_all(); });
  }
};
WINDROW_EVERY_FAULT(LaneFault);

TEST_P(LaneFault, WhileOpsRunOnLanes) {
  with_each_fault(plan(), [](const faults::Plan& plan) {
    run_trial(options(), plan, [](Trial& trial) { run(trial, ~std::uint64_t{0}); });
  });
}

TEST_P(LaneFault, WhileALaneFails) {
  with_each_fault(plan(), [](const faults::Plan& plan) {
    // A lane that has failed keeps its engine from ever waiting for all without an error.
    run_trial(options(), plan, [](Trial& trial) { run(trial, 5); });
  });
}

TEST_P(LaneFault, WhileLanesWaitForEachOtherNothingIsFreedUnderThem) {
  with_each_fault(plan(), [](const faults::Plan& plan) {
    run_trial(options(), plan, [](Trial& trial) {
      std::array<std::shared_ptr<ShelteredLane>, 2> lanes;
      std::array<LaneId, 2> ids;
      bool known = true;
      for (std::size_t i = 0; i < 2; ++i) {
        {
          const faults::Sheltered not_tested;
          lanes[i] = std::make_shared<ShelteredLane>(
              ShelteredLane::Nature{.step = std::chrono::microseconds(i == 0 ? 500 : 0), .can_wait = true});
        }
        known &= attempt([&] { ids[i] = trial.engine.add_lane(lanes[i]); });
      }
      const Var x = trial.new_var();
      if (!x || !known) return;
      attempt([&] { trial.engine.push([held = Captured()] {}, {mutate(x)}, {.lane = ids[0]}); });
      attempt([&] { trial.engine.push([held = Captured()] {}, {read(x)}, {.lane = ids[1]}); });
      attempt([&] { trial.engine.push([held = Captured()] {}, {mutate(x)}, {.lane = ids[0]}); });
      attempt([&] { trial.engine.push([held = Captured()] {}, {mutate(x)}, {.lane = ids[1]}); });
      const auto nothing_runs = [&one = *lanes[0], &two = *lanes[1]] { EXPECT_TRUE(one.is_idle() && two.is_idle()); };
      attempt([&] { trial.engine.retire(x, nothing_runs); });
      drain(trial);
    });
  });
}

TEST_P(LaneFault, WhileOpsOfALaneAreCheckedNobodyIsBlamedForWhatCouldNotBegin) {
  EngineOptions checked = options();
  checked.check = true;
  with_each_fault(plan(), [&](const faults::Plan& plan) {
    run_trial(checked, plan, [](Trial& trial) {
      std::array<int, 16> values{};
      std::shared_ptr<ShelteredLane> lane;
      {
        const faults::Sheltered not_tested;
        lane = std::make_shared<ShelteredLane>(ShelteredLane::Nature{});
      }
      LaneId id;
      const bool known = attempt([&] { id = trial.engine.add_lane(lane); });
      const Var x = trial.new_var();
      if (x) attempt([&] { trial.engine.watch(x, std::as_writable_bytes(std::span(values))); });
      if (x && known)
        attempt([&] { trial.engine.push_async([](OnComplete done) { done(); }, {mutate(x)}, {.lane = id}); });
      attempt([&] { trial.engine.wait_all(); });
      const faults::Sheltered not_tested;
      if (!x) return;
      trial.engine.push([&] { ++values[3]; }, {overwrite(x)});
      EXPECT_TRUE(trial.engine.wait_for({read(x)}, patience));
      trial.engine.retire(x);
      expect_it_ends(trial.engine);
    });
  });
}

}  // namespace
}  // namespace windrow::testing
