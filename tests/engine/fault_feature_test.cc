// Memory that is refused, at every allocation of programs that use what stands beside plain ops: graphs, accesses that
// commute, reductions, coroutines, senders, cancellation, limits, checks, traces and reports.
#include <unistd.h>

#include <coroutine>
#include <filesystem>

#include "fault_trial.h"
#include "sim_device.h"
#include "tests/folder.h"
#include "windrow/engine/coroutine.h"
#include "windrow/engine/graph.h"
#include "windrow/engine/reduction.h"
#include "windrow/engine/sender.h"

namespace windrow::testing {
namespace {

class FeatureFault : public EveryFault {};
WINDROW_EVERY_FAULT(FeatureFault);

TEST_P(FeatureFault, WhileGraphsAreCapturedExtendedAndLaunched) {
  try_program([](Trial& trial) {
    const Var x = trial.new_var(), y = trial.new_var();
    Graph graph, outer;
    int ops = 0;
    const auto body = [&] {
      const Var own = trial.engine.new_var();
      for (int i = 0; i < 3; ++i) {
        trial.engine.push([&trial, held = Captured()] { ++trial.ran; }, {read(x), mutate(own)});
        trial.engine.push([&trial, held = Captured()] { ++trial.ran; }, {read(own), mutate(y)});
      }
      trial.engine.retire(own);
    };
    ops += attempt([&] { graph = trial.engine.capture(body); }) ? 6 : 0;
    ops += graph && attempt([&] { graph.append(body); }) ? 6 : 0;
    for (int i = 0; graph && i < 3; ++i) trial.accepted += attempt([&] { graph.launch(); }) ? ops : 0;
    attempt([&] { outer = trial.engine.capture([&] { graph.launch(), graph.launch(); }); });
    for (int i = 0; outer && i < 2; ++i) trial.accepted += attempt([&] { outer.launch(); }) ? 2 * ops : 0;
    trial.push({mutate(x), mutate(y)});
    drain(trial);
  });
}

TEST_P(FeatureFault, WhileGraphsGrowAndGo) {
  try_program([](Trial& trial) {
    const Var x = trial.new_var(), y = trial.new_var(), z = trial.new_var();
    if (!x || !y || !z) return;
    for (int i = 0; i < 3; ++i) {
      Graph graph;
      int ops = 0;
      const auto body = [&] {
        trial.engine.push([&trial, held = Captured()] { ++trial.ran; }, {read(x), mutate(y)});
        trial.engine.push_async([&trial, held = Captured()](OnComplete done) { ++trial.ran, done(); }, {mutate(z)});
        for (int k = 0; k < 8; ++k) trial.engine.push([&trial, held = Captured()] { ++trial.ran; }, {read(z)});
      };
      ops += attempt([&] { graph = trial.engine.capture(body); }) ? 10 : 0;
      for (int k = 0; graph && k < 6; ++k) {
        trial.push({commute(x)});
        trial.push({commute(z)});
        trial.accepted += attempt([&] { graph.launch(); }) ? ops : 0;
        if (k == 2) ops += attempt([&] { graph.append(body); }) ? 10 : 0;
      }
      DeclaredOp op;
      attempt([&] { op = trial.engine.declare([&, held = Captured()] { ++trial.ran; }, {commute(x), mutate(y)}); });
      for (int k = 0; k < 3; ++k) trial.accepted += attempt([&] { trial.engine.push(op); });
    }
    attempt([&] { trial.engine.retire(z); });
    drain(trial);
  });
}

/// Waits and graphs put fences behind ops that commute. All is held back, so that records run out at fences too.
TEST_P(FeatureFault, WhileOpsCommuteAndAreWaitedFor) {
  try_program([](Trial& trial) {
    const Var x = trial.new_var();
    Graph reads;
    attempt([&] {
      reads = trial.engine.capture([&] {
        for (const Access access : {read(x), mutate(x), read(x)}) {
          trial.engine.push([&trial] { ++trial.ran; }, {access});
        }
      });
    });
    std::atomic<bool> open{policy() == Policy::serial};
    const auto hold = [&] {
      while (!open) std::this_thread::yield();
      ++trial.ran;
    };
    trial.accepted += attempt([&] { trial.engine.push(hold, {mutate(x)}); });
    for (int i = 0; i < 24; ++i) {
      for (int k = 0; k < 1 + i % 3; ++k) trial.push({commute(x)});
      attempt([&] { trial.engine.wait_for({read(x)}, std::chrono::nanoseconds(1)); });
      trial.push({commute(x)});
      if (reads) trial.accepted += attempt([&] { reads.launch(); }) ? 3 : 0;
    }
    open = true;
    drain(trial);
  });
}

TEST_P(FeatureFault, WhileValuesAreReduced) {
  try_program([](Trial& trial) {
    attempt([&] {
      Reduction<int> sum(trial.engine, 0);
      for (int i = 0; i < 20; ++i) {
        trial.accepted += attempt([&] { sum.add([&trial](int& part) { ++part, ++trial.ran; }); });
        if (i % 7 == 6) attempt([&] { trial.engine.wait_for({sum.read()}, patience); });
      }
      drain(trial);
    });
  });
}

TEST_P(FeatureFault, WhileOpsMayBeCalledOffAndCarryBytes) {
  try_program(
      [](Trial& trial) {
        const Var x = trial.new_var();
        std::optional<std::stop_source> off, on;
        {
          const faults::Sheltered not_tested;
          off.emplace().request_stop();
          on.emplace();
        }
        for (int i = 0; i < 10; ++i) {
          trial.push({mutate(x)}, {.stop = on->get_token(), .bytes = 400});
          attempt([&] {
            trial.engine.push([held = Captured()] { ADD_FAILURE() << "was called off"; }, {},
                              {.stop = off->get_token()});
          });
        }
      },
      options({.max_pending_bytes = 1000}));
}

TEST_P(FeatureFault, WhileOpsAreTracedAndReported) {
  const TestFolder folder;
  const std::string file = folder.file("run.json");
  try_program([&](Trial& trial) {
    attempt([&] { trial.engine.trace().start(); });
    const Var x = trial.new_var();
    for (int i = 0; i < 30; ++i) trial.push({mutate(x)});
    attempt([&] { trial.engine.describe_pending(); });
    attempt([&] { trial.engine.wait_for({read(x)}, patience); });
    attempt([&] { trial.engine.trace().summary(); });
    attempt([&] { trial.engine.trace().save(file); });
    attempt([&] { trial.engine.trace().stop(); });
    drain(trial);
  });
  std::filesystem::remove(file);
  EXPECT_TRUE(folder.files().empty()) << "a part of a trace is left behind";
}

TEST_P(FeatureFault, WhileAnUndeclaredChangeIsTold) {
  try_program(
      [](Trial& trial) {
        std::array<int, 16> values{};
        const Var x = trial.new_var(), y = trial.new_var();
        const bool watched = x && attempt([&] { trial.engine.watch(x, std::as_writable_bytes(std::span(values))); });
        const bool accepted = attempt([&] {
          trial.engine.push([&] { ++trial.ran, ++values[3]; }, {read(x), mutate(y)}, {.name = "forgetful"});
        });
        trial.accepted += accepted;
        drain(trial);
        const faults::Sheltered not_tested;
        EXPECT_EQ(trial.engine.stats().failed, watched && accepted ? 1u : 0u);
        if (x) trial.engine.retire(x);
        expect_it_ends(trial.engine);
      },
      options({.check = true}));
}

/// Ends by itself.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() {}  // what may be thrown for want of memory
  };
};

Detached await(Engine& engine, Var x, Captured) { co_await engine.ready(x); }

TEST_P(FeatureFault, WhileACoroutineAwaitsItIsNotLost) {
  try_program([](Trial& trial) {
    const Var x = trial.new_var();
    for (int i = 0; i < 40; ++i) {
      trial.push({mutate(x)});
      attempt([&] { await(trial.engine, x, Captured()); });
    }
    drain(trial);
  });
}

/// Counts how often it is told.
struct Teller {
  std::atomic<int>* told;

  void set_value() && noexcept { ++*told; }
  void set_stopped() && noexcept { ++*told; }
  void set_error(std::exception_ptr) && noexcept { ++*told; }
};

TEST_P(FeatureFault, WhileASenderIsStartedItsReceiverIsToldOnceAtTheEnd) {
  try_program([](Trial& trial) {
    const Var x = trial.new_var();
    for (int i = 0; i < 3; ++i) {
      std::atomic<int> told{0};
      std::unique_ptr<PushOperation<Teller>> operation;
      const bool started = attempt([&] {
        const auto function = [&, held = Captured()] {
          EXPECT_EQ(told, 0);
          ++trial.accepted, ++trial.ran;
        };
        operation.reset(
            new PushOperation<Teller>(push_sender(trial.engine, function, {mutate(x)}).connect(Teller{&told})));
        operation->start();
      });
      drain(trial);
      const faults::Sheltered not_tested;
      EXPECT_EQ(told, started ? 1 : 0);
    }
  });
}

// Memory that is refused while ops run on lanes and wait for their points.

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
      options({.check = true}));
}

}  // namespace
}  // namespace windrow::testing
