// Threads that the system refuses, callables that do not behave, and tokens that are called at odd times.
#include <array>
#include <optional>

#include "tests/engine/fault_trial.h"

namespace windrow::testing {
namespace {

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
