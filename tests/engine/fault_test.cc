// Memory that is refused, at every allocation of programs that use all of the engine.
//
// Each program runs with its first allocation failing, then with its second, and so on. Whatever fails: a call throws,
// or variables are poisoned; nothing hangs, leaks or aborts, every op that was accepted runs, and afterwards the engine
// works.

#include "fault_trial.h"

namespace windrow::testing {
namespace {

class Fault : public EveryFault {
 protected:
  /// Expects that the wait fails, for want of memory or by the op that has failed.
  template <class Wait>
  static void expect_failure(Wait&& wait) {
    const bool forgotten = attempt(wait);
    const faults::Sheltered not_tested;
    EXPECT_FALSE(forgotten) << "the failure was forgotten";
  }
};
WINDROW_EVERY_FAULT(Fault);

TEST_P(Fault, WhileAnEngineIsMade) {
  with_each_fault(plan(), [](const faults::Plan& plan) {
    std::unique_ptr<Engine> engine;
    {
      const EngineOptions given = options();
      const faults::Armed armed(plan);
      attempt([&] { engine = std::make_unique<Engine>(given); });
    }
    if (engine) expect_it_works(*engine);
  });
}

TEST_P(Fault, WhileVariablesAreMadeAndEnded) {
  try_program([](Trial& trial) {
    std::array<Var, 40> vars;
    for (int round = 0; round < 2; ++round) {
      for (Var& var : vars) var = trial.new_var();
      for (Var var : vars) {
        if (!var) continue;
        trial.push({mutate(var)});
        bool retired = false;
        while (!retired && !faults::struck()) retired = attempt([&] { trial.engine.retire(var); });
      }
    }
  });
}

TEST_P(Fault, WhileOpsArePushed) {
  try_program([](Trial& trial) {
    std::array<Var, 12> vars;
    for (Var& var : vars) var = trial.new_var();
    std::array<Access, 12> all;
    for (std::size_t i = 0; i < vars.size(); ++i) all[i] = i % 2 == 0 ? read(vars[i]) : mutate(vars[i]);
    for (int round = 0; round < 3; ++round) {
      trial.push({mutate(vars[0])});
      trial.push({read(vars[0]), mutate(vars[1])}, {.name = "urgent", .priority = 2});
      trial.push({read(vars[0])}, {.name = "background", .priority = -1});
      trial.push(std::span<const Access>(all));
      const std::array<char, 300> large{};
      trial.accepted += attempt([&] {
        trial.engine.push([&trial, large, held = Captured()] { trial.ran += 1 + large[0]; }, {mutate(vars[2])});
      });
    }
  });
}

TEST_P(Fault, WhileARetiredVariableIsNamed) {
  try_program([](Trial& trial) {
    const Var x = trial.new_var(), y = trial.new_var();
    bool retired = false;
    while (x && !retired && !faults::struck()) retired = attempt([&] { trial.engine.retire(x); });
    for (int i = 0; i < 3; ++i) trial.push({mutate(y), read(x)}, {.name = "a name that is too long for no memory"});
    attempt([&] { trial.engine.wait({read(x), read(y)}); });
  });
}

/// Independent ops become ready all at once, more than any queue has room for in the beginning.
TEST_P(Fault, WhileManyOpsBecomeReady) {
  for (const int priority : {0, 1, -1}) {
    try_program([priority](Trial& trial) {
      const Var all = trial.new_var();
      trial.accepted += attempt([&] {
        trial.engine.push(
            [&trial, all, priority] {
              ++trial.ran;
              for (int i = 0; i < 300; ++i) trial.push({read(all)}, {.priority = priority});
              for (int i = 0; i < 280; ++i) trial.push({}, {.priority = priority});
            },
            {mutate(all)});
      });
      attempt([&] { trial.engine.wait({mutate(all)}); });
    });
  }
}

TEST_P(Fault, WhileWaiting) {
  try_program([](Trial& trial) {
    const Var x = trial.new_var(), y = trial.new_var();
    for (int i = 0; i < 4; ++i) {
      trial.push({mutate(x)});
      trial.push({read(x), mutate(y)});
      attempt([&] { trial.engine.wait(x); });
      attempt([&] { trial.engine.wait_for({read(x), mutate(y)}, patience); });
      attempt([&] { trial.engine.wait_for({read(x), mutate(y)}, std::chrono::nanoseconds(1)); });
      attempt([&] { trial.engine.wait_all(); });
    }
  });
}

TEST_P(Fault, WhileWaitingInsideAnOp) {
  try_program([](Trial& trial) {
    const Var x = trial.new_var(), y = trial.new_var();
    for (int i = 0; i < 3; ++i) {
      trial.accepted += attempt([&] {
        trial.engine.push(
            [&trial, x] {
              ++trial.ran;
              trial.push({mutate(x)});
              attempt([&] { trial.engine.wait(x); });
              attempt([&] { trial.engine.wait_for({read(x)}, patience); });
            },
            {overwrite(y)});
      });
    }
    attempt([&] { trial.engine.wait({read(y)}); });
  });
}

/// Both ops wait then, one inside the other.
TEST_P(Fault, WhileWaitingInsideAnOpOfAnotherEngine) {
  try_program([](Trial& trial) {
    std::optional<Engine> serial;
    {
      const faults::Sheltered not_tested;
      serial.emplace(EngineOptions{.policy = Policy::serial});
    }
    const Var x = trial.new_var();
    const auto wait_inside = [&] {
      attempt([&] { trial.engine.push([] { std::this_thread::sleep_for(1ms); }, {mutate(x)}); });
      attempt([&] { serial->push([&] { attempt([&] { trial.engine.wait(x); }); }, {}); });
    };
    trial.accepted += attempt([&] { trial.engine.push([&] { ++trial.ran, wait_inside(); }, {}); });
    drain(trial);
    const faults::Sheltered not_tested;
    serial.reset();
  });
}

TEST_P(Fault, WhileOpsAreCompletedByAThreadThatHasNeverSeenTheEngine) {
  try_program([](Trial& trial) {
    const Var x = trial.new_var(), y = trial.new_var();
    std::atomic<OnComplete*> token{nullptr};
    for (int i = 0; i < 3; ++i) {
      if (!attempt([&] {
            trial.engine.push_async(
                [&, held = Captured()](OnComplete done) {
                  const faults::Sheltered not_tested;
                  token = new OnComplete(std::move(done));
                },
                {mutate(x)});
          })) {
        continue;
      }
      for (int k = 0; k < 3; ++k) trial.push({read(x)});
      trial.push({mutate(x), mutate(y)});
      const faults::Sheltered not_tested;
      std::thread([&] {
        while (token == nullptr) std::this_thread::yield();
        const faults::Sheltered freeing;
        const std::unique_ptr<OnComplete> done(token.exchange(nullptr));
        const faults::Exposed completing;
        (*done)();
      }).join();
    }
    drain(trial);
  });
}

TEST_P(Fault, WhileATokenIsDropped) {
  try_program([](Trial& trial) {
    const Var x = trial.new_var();
    const bool accepted = attempt([&] { trial.engine.push_async([held = Captured()](OnComplete) {}, {mutate(x)}); });
    trial.push_uncounted({read(x)});
    if (accepted) expect_failure([&] { trial.engine.wait(x); });
    attempt([&] { trial.engine.heal(x); });
  });
}

TEST_P(Fault, WhileOpsFailNoFailureIsForgotten) {
  try_program([](Trial& trial) {
    const Var x = trial.new_var(), y = trial.new_var(), z = trial.new_var();
    const bool failed = attempt(
        [&] { trial.engine.push([held = Captured()] { throw std::runtime_error("planned to fail"); }, {mutate(x)}); });
    const bool skipped = attempt([&] { trial.engine.push([held = Captured()] {}, {read(x), mutate(y)}); });
    trial.push({read(y), mutate(z)}, {.run_always = true});
    if (failed) expect_failure([&] { trial.engine.wait(x); });
    if (failed && skipped) expect_failure([&] { trial.engine.wait(y); });
    if (failed) expect_failure([&] { trial.engine.wait_all(); });
    attempt([&] { trial.engine.heal(x); });
    attempt([&] { trial.engine.heal(y); });
  });
}

TEST_P(Fault, WhileAnErrorIsToldItIsNotLost) {
  with_each_fault(plan(), [](const faults::Plan& plan) {
    Engine engine(options());
    const Var x = engine.new_var();
    engine.push([] { throw std::runtime_error("planned to fail"); }, {mutate(x)});
    engine.retire(x);
    bool told = false;
    const auto wait = [&] {
      try {
        EXPECT_TRUE(engine.wait_all_for(patience));
      } catch (const OpError&) {
        told = true;
      } catch (const std::bad_alloc&) {
      }
    };
    {
      const faults::Armed armed(plan);
      wait();
    }
    if (!told) wait();
    EXPECT_TRUE(told);
  });
}

TEST_P(Fault, WhileAnEngineShutsDown) {
  for (const bool by_destructor : {true, false}) {
    with_each_fault(plan(), [=](const faults::Plan& plan) {
      auto engine = std::make_unique<Engine>(options());
      Trial trial{*engine};
      const Var x = engine->new_var();
      for (int i = 0; i < 50; ++i) trial.push({mutate(x)});
      {
        const faults::Armed armed(plan);
        if (by_destructor) {
          engine.reset();
        } else {
          attempt([&] { engine->shutdown(); });
        }
      }
      engine.reset();
      EXPECT_EQ(trial.ran, 50);
    });
  }
}

// Threads that the system refuses, callables that do not behave, and tokens that are called at odd times.

class ThreadFault : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(ThreadFault);

TEST_P(ThreadFault, APushIsRefusedAndALaterOneWorksIfNoThreadCanBeStarted) {
  std::atomic<int> ran{0};
  int accepted = 0;
  {
    const faults::ThreadsRefused none(0);
    for (int i = 0; i < 3; ++i) accepted += attempt([&] { engine.push([&] { ++ran; }, {mutate(a)}); });
    EXPECT_EQ(accepted, GetParam().policy == Policy::serial ? 3 : 0);
  }
  EXPECT_TRUE(engine.wait_for({read(a)}, patience));
  EXPECT_EQ(ran, accepted);
  expect_it_works(engine);
}

TEST_P(ThreadFault, OneThreadIsEnoughForAllOps) {
  std::atomic<int> ran{0};
  const faults::ThreadsRefused others(1);
  for (int i = 0; i < 100; ++i) {
    engine.push([&] { ++ran; }, {read(a)}, {.priority = i % 3});
    engine.push([&] { ++ran; }, {mutate(b)});
  }
  EXPECT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(ran, 200);
}

TEST_P(ThreadFault, WithEachSpareThreadRefusedWaitsInsideOpsEnd) {
  for (int threads = 1; threads < 6; ++threads) {
    Engine fresh(options());
    std::atomic<int> ran{0};
    const auto op = [&] {
      const Var inner = fresh.new_var();
      fresh.push([&] { ++ran; }, {mutate(inner)});
      fresh.wait(inner);
      fresh.retire(inner);
    };
    {
      const faults::ThreadsRefused others(threads);
      for (int i = 0; i < 4; ++i) fresh.push(op, {});
      EXPECT_TRUE(fresh.wait_all_for(patience));
    }
    EXPECT_EQ(ran, 4);
    expect_it_works(fresh);
  }
}

TEST_P(ThreadFault, AnOpThatOthersCompleteIsAcceptedOnlyIfAThreadCanGoOn) {
  std::atomic<int> ran{0};
  {
    const faults::ThreadsRefused none(0);
    EXPECT_FALSE(attempt([&] { engine.push_async([](OnComplete) {}, {mutate(a)}); }));
  }
  HeldOp held(engine, {mutate(a)});
  const faults::ThreadsRefused others(1);
  engine.push([&] { ++ran; }, {read(a)});
  std::thread([&] { held.complete(); }).join();
  EXPECT_TRUE(engine.wait_for({mutate(a)}, patience));
  EXPECT_EQ(ran, 1);
}

TEST_P(ThreadFault, ACallableWhoseMoveThrowsIsRefusedAndLeavesNothing) {
  struct Unmovable {
    explicit Unmovable(bool does) : throws(does) {}
    Unmovable(const Unmovable& other) : throws(other.throws) {
      if (throws) throw Error("a copy that is refused");
    }
    void operator()() const {}
    void operator()(OnComplete done) const { done(); }
    bool throws;
    Captured held;
  };
  const Unmovable refused(true), fine(false);
  EXPECT_FALSE(attempt([&] { engine.push(refused, {mutate(a)}); }));
  EXPECT_FALSE(attempt([&] { engine.retire(a, refused); }));
  EXPECT_FALSE(attempt([&] { engine.push_async(refused, {mutate(a)}); }));
  EXPECT_FALSE(attempt([&] { engine.declare([refused] { refused(); }, {mutate(a)}); }));
  EXPECT_FALSE(attempt([&] {
    engine.capture([&] {
      engine.push(fine, {mutate(a)});
      engine.push(refused, {mutate(a)});
    });
  }));
  EXPECT_TRUE(attempt([&] { engine.push(fine, {mutate(a)}); }));
  engine.wait(a);
  EXPECT_EQ(engine.stats().pushed, 1u);
  EXPECT_EQ(Captured::alive(), 2);
}

TEST_P(ThreadFault, ASlowDestructorOfACallableIsAwaitedBySuccessors) {
  struct Slow {
    explicit Slow(std::atomic<bool>* at_end) : ended(at_end) {}
    Slow(Slow&& other) noexcept : ended(std::exchange(other.ended, nullptr)) {}
    ~Slow() {
      if (ended == nullptr) return;
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
      *ended = true;
    }
    void operator()() const {}
    std::atomic<bool>* ended;
  };
  std::atomic<bool> ended{false}, seen{false};
  engine.push(Slow(&ended), {mutate(a)});
  engine.push([&] { seen = ended.load(); }, {read(a)});
  engine.wait({mutate(a)});
  EXPECT_TRUE(seen);
}

TEST_P(ThreadFault, ATokenMayBeCalledByAnotherThreadAfterShutdownHasBegunAndOnlyOnce) {
  HeldOp held(engine, {mutate(a)});
  std::atomic<bool> ran{false};
  engine.push([&] { ran = true; }, {read(a)});
  std::jthread completes([&] {
    while (attempt([&] { engine.push([] {}, {}); })) std::this_thread::yield();  // until shutdown has begun
    held.complete();
    EXPECT_FALSE(attempt([&] { held.complete(); }));
  });
  engine.shutdown();
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace windrow::testing
