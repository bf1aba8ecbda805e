// Policy chaos finds what a program forgot to declare, and finds it again from its log.
#include <cstdio>
#include <vector>

#include "tests/engine/support.h"

namespace windrow::testing {
namespace {

struct Outcome {
  std::uint64_t value = 0;
  std::vector<OpId> log;
  bool diverged = false;
};

/// Adds up what each of a chain of steps leaves behind. One op in the middle reads `shared` and does not say so.
Outcome run_with_undeclared_read(EngineOptions options) {
  constexpr int steps = 20, careless = 9;
  std::uint64_t shared = 0, sum = 0, elsewhere = 0;
  Outcome outcome;
  Engine engine(std::move(options));
  const Var shared_var = engine.new_var("shared"), sum_var = engine.new_var("sum"), other = engine.new_var("other");
  for (int i = 0; i < steps; ++i) {
    engine.push([&, i] { shared = 3 * shared + static_cast<std::uint64_t>(i); }, {mutate(shared_var)});
    if (i == careless) {
      engine.push([&] { elsewhere += shared; }, {read(sum_var), mutate(other)});  // and read(shared_var)
    } else {
      engine.push([&] { sum += shared; }, {read(shared_var), mutate(sum_var)});
    }
  }
  EXPECT_TRUE(engine.wait_all_for(patience));
  outcome.value = sum + 31 * elsewhere;
  outcome.log = engine.schedule_log();
  outcome.diverged = engine.stats().replay_diverged;
  return outcome;
}

// One worker: ops do not overlap, so that the program has no race, only a wrong order, and a log says all of a run.
EngineOptions chaos(std::uint64_t seed) { return {.policy = Policy::chaos, .workers = 1, .chaos_seed = seed}; }

TEST(Chaos, AnUndeclaredReadIsFoundWithinAThousandRunsAndReplayed) {
  const std::uint64_t right = run_with_undeclared_read({.policy = Policy::serial}).value;
  std::uint64_t seed = 1;
  Outcome wrong = run_with_undeclared_read(chaos(seed));
  while (wrong.value == right && seed < 1000) wrong = run_with_undeclared_read(chaos(++seed));
  ASSERT_NE(wrong.value, right) << "not found with seeds 1 to " << seed;
  std::printf("found with seed %llu\n", static_cast<unsigned long long>(seed));
  for (int again = 0; again < 5; ++again) {
    EngineOptions options = chaos(1000 + static_cast<std::uint64_t>(again));
    options.chaos_replay = wrong.log;
    const Outcome replayed = run_with_undeclared_read(options);
    EXPECT_EQ(replayed.value, wrong.value);
    EXPECT_EQ(replayed.log, wrong.log);
    EXPECT_FALSE(replayed.diverged);
  }
}

TEST(Chaos, ReplayReachesBothTheRightAndTheWrongResult) {
  const std::uint64_t right = run_with_undeclared_read({.policy = Policy::serial}).value;
  int rights = 0, wrongs = 0;
  for (std::uint64_t seed = 1; seed <= 1000 && (rights == 0 || wrongs == 0); ++seed) {
    const Outcome first = run_with_undeclared_read(chaos(seed));
    ++(first.value == right ? rights : wrongs);
    EngineOptions options = chaos(seed + 1);
    options.chaos_replay = first.log;
    EXPECT_EQ(run_with_undeclared_read(options).value, first.value) << "seed " << seed;
  }
  EXPECT_GT(rights, 0);
  EXPECT_GT(wrongs, 0);
}

}  // namespace
}  // namespace windrow::testing
