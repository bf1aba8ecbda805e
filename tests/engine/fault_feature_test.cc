// Memory that is refused, at every allocation of programs that use what stands beside plain ops: graphs, accesses that
// commute, reductions, coroutines, senders, cancellation, limits, checks, traces and reports.
#include <unistd.h>

#include <array>
#include <coroutine>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "tests/engine/fault_trial.h"
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
    int ops = 0;
    attempt([&] {
      reads = trial.engine.capture([&] {
        trial.engine.push([&trial] { ++trial.ran; }, {read(x)});
        trial.engine.push([&trial] { ++trial.ran; }, {mutate(x)});
        trial.engine.push([&trial] { ++trial.ran; }, {read(x)});
      });
      ops = 3;
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
      if (reads) trial.accepted += attempt([&] { reads.launch(); }) ? ops : 0;
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
  EngineOptions limited = options();
  limited.max_pending_bytes = 1000;
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
      limited);
}

TEST_P(FeatureFault, WhileOpsAreTracedAndReported) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("windrow_faults_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string file = folder / "run.json";
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
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "a part of a trace is left behind";
  std::filesystem::remove_all(folder);
}

TEST_P(FeatureFault, WhileAnUndeclaredChangeIsTold) {
  EngineOptions checked = options();
  checked.check = true;
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
      checked);
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

}  // namespace
}  // namespace windrow::testing
