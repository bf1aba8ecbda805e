// A trial: an engine, a program, and an allocation that fails while the program runs.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <new>
#include <tuple>

#include "tests/engine/faults.h"
#include "tests/engine/support.h"

namespace windrow::testing {

/// Counts its instances, to detect captures that were not destroyed.
class Captured {
 public:
  Captured() noexcept { ++alive_; }
  Captured(const Captured&) noexcept { ++alive_; }
  ~Captured() { --alive_; }
  Captured& operator=(const Captured&) = default;
  static int alive() { return alive_; }

 private:
  static inline std::atomic<int> alive_{0};
};

/// Returns whether the call succeeded. Catches the exceptions that a call may throw if memory or a thread is not
/// available.
template <class Call>
bool attempt(Call&& call) {
  try {
    call();
    return true;
  } catch (const std::bad_alloc&) {
  } catch (const Error&) {
  }
  return false;
}

/// The counts of a program. Each accepted op must run exactly once.
struct Trial {
  Engine& engine;
  std::atomic<int> accepted{0}, ran{0};

  /// Pushes an op that counts itself.
  void push(AccessList accesses, const PushOptions& options = {}) {
    accepted += attempt([&] { engine.push([this, held = Captured()] { ++ran; }, accesses, options); });
  }
  /// An op that holds a capture, and counts nothing.
  void push_uncounted(AccessList accesses, const PushOptions& options = {}) {
    attempt([&] { engine.push([held = Captured()] {}, accesses, options); });
  }
  Var new_var() {
    Var var;
    attempt([&] { var = engine.new_var(); });
    return var;
  }
};

/// Checks an engine after its fault, when it has memory again.
inline void expect_it_works(Engine& engine) {
  const Var x = engine.new_var(), y = engine.new_var();
  int a = 0, b = 0;
  for (int i = 0; i < 20; ++i) {
    engine.push([&] { ++a; }, {mutate(x)});
    engine.push([&] { b += a; }, {read(x), mutate(y)});
  }
  EXPECT_TRUE(engine.wait_for({read(x), read(y)}, patience));
  EXPECT_EQ(a, 20);
  EXPECT_EQ(b, 210);
}

/// Checks that all pending ops end, with or without errors.
inline void expect_it_ends(Engine& engine) {
  try {
    EXPECT_TRUE(engine.wait_all_for(patience));
  } catch (const OpError&) {
  }
  EXPECT_EQ(engine.stats().pending, 0u);
}

/// Waits for all ops of a program, before the local variables of the program are destroyed.
inline void drain(Trial& trial) {
  const faults::Sheltered not_tested;
  expect_it_ends(trial.engine);
}

/// Runs `trial(plan)` repeatedly, each time in a new thread: the first allocation fails, then the second, and so on
/// until none fails. The strides grow, faster if WINDROW_FAULT_STRIDES is small; the environment may set that. No run
/// may leave allocated blocks.
template <class RunTrial>
void with_each_fault(faults::Plan plan, RunTrial&& trial) {
  const auto run = [&] { std::thread([&] { trial(plan); }).join(); };
  plan.at = ~std::uint64_t{0};
  run();  // allocates what the process keeps permanently
  std::uint64_t runs = 1;
  const char* const told = std::getenv("WINDROW_FAULT_STRIDES");
  const std::uint64_t strides = told == nullptr ? WINDROW_FAULT_STRIDES : std::strtoull(told, nullptr, 10);
  for (plan.at = 1;; plan.at += 1 + plan.at / strides, ++runs) {
    const std::int64_t before = faults::live_blocks();
    run();
    ASSERT_FALSE(::testing::Test::HasFailure()) << "with allocation " << plan.at << " failing";
    ASSERT_EQ(faults::live_blocks(), before) << "with allocation " << plan.at << " failing";
    if (!faults::struck()) break;
  }
  std::printf("%llu allocations failed, one in each run\n", static_cast<unsigned long long>(runs - 1));
}

/// A test that runs with every policy and every way in which memory is refused.
class EveryFault : public ::testing::TestWithParam<std::tuple<Policy, faults::Where, faults::Lasts>> {
 protected:
  static Policy policy() { return std::get<Policy>(GetParam()); }
  static faults::Plan plan() {
    return {.where = std::get<faults::Where>(GetParam()), .lasts = std::get<faults::Lasts>(GetParam())};
  }
  static EngineOptions options(EngineOptions more = {}) {
    more.policy = policy();
    more.workers = policy() == Policy::per_device ? 1 : 2;
    return more;
  }
  static void try_program(const std::function<void(Trial&)>& program,
                          const EngineOptions& options = EveryFault::options()) {
    with_each_fault(plan(), [&](const faults::Plan& plan) {
      Engine engine(options);
      Trial trial{engine};
      {
        const faults::Armed armed(plan);
        program(trial);
      }
      expect_it_ends(engine);
      EXPECT_EQ(trial.ran, trial.accepted);
      EXPECT_EQ(Captured::alive(), 0);
      expect_it_works(engine);
    });
  }
};

/// The name of a test with this policy and these faults.
inline std::string fault_name(const ::testing::TestParamInfo<EveryFault::ParamType>& info) {
  const auto& [policy, where, lasts] = info.param;
  return std::string(to_string(policy)) + (where == faults::Where::any_thread ? "_any_thread" : "_this_thread") +
         (lasts == faults::Lasts::once ? "_once" : "_from_then_on");
}

}  // namespace windrow::testing

#define WINDROW_EVERY_FAULT(fixture)                                                                                  \
  INSTANTIATE_TEST_SUITE_P(All, fixture,                                                                              \
                           ::testing::Combine(::testing::Values(windrow::Policy::serial, windrow::Policy::pool,       \
                                                                windrow::Policy::per_device, windrow::Policy::chaos), \
                                              ::testing::Values(windrow::testing::faults::Where::any_thread,          \
                                                                windrow::testing::faults::Where::this_thread),        \
                                              ::testing::Values(windrow::testing::faults::Lasts::once,                \
                                                                windrow::testing::faults::Lasts::from_then_on)),      \
                           windrow::testing::fault_name)
