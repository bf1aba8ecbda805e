// Memory that is refused while ops run on lanes and wait for their points.
#include <array>

#include "tests/engine/fault_trial.h"
#include "tests/engine/sim_device.h"

namespace windrow::testing {
namespace {

/// A lane that never runs out of memory itself.
class ShelteredLane final : public SimLane {
 public:
  struct Nature {
    std::uint64_t fails_at = ~std::uint64_t{0};  ///< from this point on it is failed
    std::chrono::microseconds step{0};           ///< what each point takes
    int device = 1;
  };
  explicit ShelteredLane(const Nature& nature) : SimLane("sheltered", nature.device), nature_(nature) {
    launch([] { thread_local const faults::Sheltered not_tested; });
  }

  Point record() noexcept override {
    const faults::Sheltered not_tested;
    if (recorded_ + 1 == nature_.fails_at) launch([] { throw Error("the lane failed"); });
    if (nature_.step.count() > 0) launch([step = nature_.step] { std::this_thread::sleep_for(step); });
    const Point point = SimLane::record();
    recorded_ = point.serial;
    return point;
  }
  void wait(Point point, IfFailed if_failed) noexcept override {
    const faults::Sheltered not_tested;
    SimLane::wait(point, if_failed);
  }
  void when_reached(Point point, Reached callback) noexcept override {
    const faults::Sheltered not_tested;
    SimLane::when_reached(point, [callback = std::move(callback)](const std::exception_ptr& error) {
      const faults::Exposed tested;
      callback(error);
    });
  }
  /// Whether it has reached all points.
  bool is_idle() const { return reached({const_cast<ShelteredLane*>(this), recorded_}); }

 private:
  const Nature nature_;
  std::atomic<std::uint64_t> recorded_{0};
};

class LaneFault : public EveryFault {
 protected:
  static std::shared_ptr<ShelteredLane> make_lane(const ShelteredLane::Nature& nature) {
    const faults::Sheltered not_tested;
    return std::make_shared<ShelteredLane>(nature);
  }

  /// Two ordered lanes, that wait for each other on the host, and a host lane.
  static void run(Trial& trial, std::uint64_t fails_at) {
    std::array<LaneId, 3> lanes;
    std::array<bool, 3> known;
    for (std::size_t i = 0; i < 2; ++i) {
      const auto lane = make_lane({.fails_at = fails_at, .device = 1 + static_cast<int>(i)});
      known[i] = attempt([&] { lanes[i] = trial.engine.add_lane(lane); });
    }
    known[2] = attempt([&] { lanes[2] = trial.engine.add_lane(HostLane{.name = "copies"}); });
    const Var x = trial.new_var(), y = trial.new_var(), only_read = trial.new_var();
    for (int round = 0; round < 4; ++round) {
      for (std::size_t i = 0; i < 3; ++i) {
        if (!known[i]) continue;
        trial.push_uncounted({mutate(x)}, {.lane = lanes[i]});
        trial.push_uncounted({read(x), mutate(y)}, {.lane = lanes[i]});
        trial.push_uncounted({read(only_read)}, {.lane = lanes[i]});
        trial.push_uncounted({read(y)});
      }
      trial.push_uncounted({read(x), mutate(y)});
    }
    attempt([&] { trial.engine.wait({read(x), mutate(y)}); });
    attempt([&] { trial.engine.wait_all(); });
  }
};
WINDROW_EVERY_FAULT(LaneFault);

TEST_P(LaneFault, WhileOpsRunOnLanes) {
  try_program([](Trial& trial) { run(trial, ~std::uint64_t{0}); });
}

TEST_P(LaneFault, WhileALaneFails) {
  // A lane that has failed keeps its engine from ever waiting for all without an error.
  try_program([](Trial& trial) { run(trial, 5); });
}

TEST_P(LaneFault, WhileLanesWaitForEachOtherNothingIsFreedUnderThem) {
  try_program([](Trial& trial) {
    std::array<std::shared_ptr<ShelteredLane>, 2> lanes;
    std::array<LaneId, 2> ids;
    bool known = true;
    for (std::size_t i = 0; i < 2; ++i) {
      lanes[i] = make_lane({.step = std::chrono::microseconds(i == 0 ? 500 : 0)});
      known &= attempt([&] { ids[i] = trial.engine.add_lane(lanes[i]); });
    }
    const Var x = trial.new_var();
    if (!x || !known) return;
    trial.push_uncounted({mutate(x)}, {.lane = ids[0]});
    trial.push_uncounted({read(x)}, {.lane = ids[1]});
    trial.push_uncounted({mutate(x)}, {.lane = ids[0]});
    trial.push_uncounted({mutate(x)}, {.lane = ids[1]});
    const auto nothing_runs = [&one = *lanes[0], &two = *lanes[1]] { EXPECT_TRUE(one.is_idle() && two.is_idle()); };
    attempt([&] { trial.engine.retire(x, nothing_runs); });
    drain(trial);
  });
}

TEST_P(LaneFault, WhileOpsOfALaneAreCheckedNobodyIsBlamedForWhatCouldNotBegin) {
  EngineOptions checked = options();
  checked.check = true;
  try_program(
      [](Trial& trial) {
        std::array<int, 16> values{};
        const auto lane = make_lane({});
        LaneId id;
        const bool known = attempt([&] { id = trial.engine.add_lane(lane); });
        const Var x = trial.new_var();
        if (x) attempt([&] { trial.engine.watch(x, std::as_writable_bytes(std::span(values))); });
        const auto push = [&] { trial.engine.push_async([](OnComplete done) { done(); }, {mutate(x)}, {.lane = id}); };
        if (x && known) attempt(push);
        attempt([&] { trial.engine.wait_all(); });
        const faults::Sheltered not_tested;
        if (!x) return;
        trial.engine.push([&] { ++values[3]; }, {overwrite(x)});
        EXPECT_TRUE(trial.engine.wait_for({read(x)}, patience));
        trial.engine.retire(x);
        expect_it_ends(trial.engine);
      },
      checked);
}

}  // namespace
}  // namespace windrow::testing
