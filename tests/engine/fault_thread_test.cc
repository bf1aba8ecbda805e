// Threads that the system refuses, callables that do not behave, and tokens that are called at odd times.
#include <array>
#include <optional>

#include "tests/engine/fault_trial.h"

namespace windrow::testing {
namespace {

class ThreadFault : public EveryPolicy {};
WINDROW_EVERY_POLICY(ThreadFault);

TEST_P(ThreadFault, APushIsRefusedAndALaterOneWorksIfNoThreadCanBeStarted) {
  Engine engine(options());
  const Var x = engine.new_var();
  std::atomic<int> ran{0};
  int accepted = 0;
  {
    const faults::ThreadsRefused none(0);
    for (int i = 0; i < 3; ++i) accepted += attempt([&] { engine.push([&] { ++ran; }, {mutate(x)}); });
    EXPECT_EQ(accepted, GetParam().policy == Policy::serial ? 3 : 0);
  }
  EXPECT_TRUE(engine.wait_for({read(x)}, patience));
  EXPECT_EQ(ran, accepted);
  expect_it_works(engine);
}

TEST_P(ThreadFault, OneThreadIsEnoughForAllOps) {
  Engine engine(options());
  const Var x = engine.new_var(), y = engine.new_var();
  std::atomic<int> ran{0};
  const faults::ThreadsRefused others(1);
  for (int i = 0; i < 100; ++i) {
    engine.push([&] { ++ran; }, {read(x)}, {.priority = i % 3});
    engine.push([&] { ++ran; }, {mutate(y)});
  }
  EXPECT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(ran, 200);
}

TEST_P(ThreadFault, WithEachSpareThreadRefusedWaitsInsideOpsEnd) {
  for (int threads = 1; threads < 6; ++threads) {
    Engine engine(options());
    std::array<Var, 4> vars;
    for (Var& var : vars) var = engine.new_var();
    std::atomic<int> ran{0};
    {
      const faults::ThreadsRefused others(threads);
      for (std::size_t i = 0; i < vars.size(); ++i) {
        engine.push(
            [&] {
              const Var inner = engine.new_var();
              engine.push([&] { ++ran; }, {mutate(inner)});
              engine.wait(inner);
              engine.retire(inner);
            },
            {mutate(vars[i])});
      }
      EXPECT_TRUE(engine.wait_all_for(patience));
    }
    EXPECT_EQ(ran, 4);
    expect_it_works(engine);
  }
}

TEST_P(ThreadFault, AnOpThatOthersCompleteIsAcceptedOnlyIfAThreadCanGoOn) {
  Engine engine(options());
  const Var x = engine.new_var();
  std::atomic<int> ran{0};
  std::optional<OnComplete> token;
  Gate given;
  const auto push = [&] {
    return attempt([&] {
      engine.push_async(
          [&](OnComplete done) {
            token.emplace(std::move(done));
            given.open();
          },
          {mutate(x)});
    });
  };
  {
    const faults::ThreadsRefused none(0);
    EXPECT_FALSE(push());
  }
  ASSERT_TRUE(push());
  const faults::ThreadsRefused others(1);
  ASSERT_TRUE(given.pass());
  engine.push([&] { ++ran; }, {read(x)});
  std::thread([&] { (*token)(); }).join();
  EXPECT_TRUE(engine.wait_for({mutate(x)}, patience));
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
  Engine engine(options());
  const Var x = engine.new_var();
  const Unmovable refused(true), fine(false);
  EXPECT_FALSE(attempt([&] { engine.push(refused, {mutate(x)}); }));
  EXPECT_FALSE(attempt([&] { engine.retire(x, refused); }));
  EXPECT_FALSE(attempt([&] { engine.push_async(refused, {mutate(x)}); }));
  EXPECT_FALSE(attempt([&] { engine.declare([refused] { refused(); }, {mutate(x)}); }));
  EXPECT_FALSE(attempt([&] {
    engine.capture([&] {
      engine.push(fine, {mutate(x)});
      engine.push(refused, {mutate(x)});
    });
  }));
  EXPECT_TRUE(attempt([&] { engine.push(fine, {mutate(x)}); }));
  engine.wait(x);
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
  Engine engine(options());
  const Var x = engine.new_var();
  std::atomic<bool> ended{false}, seen{false};
  engine.push(Slow(&ended), {mutate(x)});
  engine.push([&] { seen = ended.load(); }, {read(x)});
  engine.wait({mutate(x)});
  EXPECT_TRUE(seen);
}

TEST_P(ThreadFault, ATokenMayBeCalledByAnotherThreadAfterShutdownHasBegunAndOnlyOnce) {
  Engine engine(options());
  const Var x = engine.new_var();
  std::optional<OnComplete> token;
  Gate given;
  engine.push_async(
      [&](OnComplete done) {
        token.emplace(std::move(done));
        given.open();
      },
      {mutate(x)});
  std::atomic<bool> ran{false}, refused{false};
  engine.push([&] { ran = true; }, {read(x)});
  ASSERT_TRUE(given.pass());
  std::thread completes([&] {
    while (attempt([&] { engine.push([] {}, {}); })) std::this_thread::yield();  // until shutdown has begun
    (*token)();
    refused = !attempt([&] { (*token)(); });
  });
  engine.shutdown();
  completes.join();
  EXPECT_TRUE(ran);
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace windrow::testing
