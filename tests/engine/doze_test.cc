// Workers that fall asleep just as ops come: each op begins although nobody waits for it in the engine.
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/engine/support.h"

namespace windrow::testing {
namespace {

class Doze : public EngineOnEveryPolicy {
 protected:
  /// Of one thread: a few ops at a time, after gaps about as long as a worker looks around before it sleeps.
  void push_now_and_then(unsigned seed, std::chrono::milliseconds duration) {
    std::mt19937 random(seed);
    std::vector<Var> vars;
    for (int i = 0; i < 4; ++i) vars.push_back(engine.new_var());
    const auto end = std::chrono::steady_clock::now() + duration;
    while (std::chrono::steady_clock::now() < end && !HasFailure()) {
      idle_for(std::chrono::microseconds(random() % (random() % 4 == 0 ? 200 : 20)));
      int pushed = 0;
      std::atomic<int> ran{0};
      if (random() % 4 == 0) {  // that one's thread sleeps, inside it, until the next has run
        engine.push([&] { engine.wait(vars[3]), ++ran; }, {mutate(vars[0])});
        engine.push([&] { ++ran; }, {mutate(vars[3])});
        pushed += 2;
      }
      for (auto more = static_cast<int>(1 + random() % 10); more > 0; --more, ++pushed) {
        engine.push([&] { ++ran; }, {mutate(vars[random() % 4])});
      }
      await(ran, pushed);
      if (ran != pushed) engine.wait_all();  // the ops write to what is here
    }
  }

 private:
  static void idle_for(std::chrono::microseconds time) {
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < time) std::this_thread::yield();
  }
  void await(const std::atomic<int>& ran, int pushed) {
    const auto begin = std::chrono::steady_clock::now();
    while (ran != pushed && std::chrono::steady_clock::now() - begin < patience) std::this_thread::yield();
    EXPECT_EQ(ran, pushed) << engine.describe_pending();
  }
};
WINDROW_THREADED_POLICIES(Doze);

TEST_P(Doze, NoOpIsLeftWhenWorkersFallAsleep) { push_now_and_then(1, 300ms); }

TEST_P(Doze, NorWhenTwoThreadsPush) {
  std::thread other([&] { push_now_and_then(2, 300ms); });
  push_now_and_then(3, 300ms);
  other.join();
}

}  // namespace
}  // namespace windrow::testing
