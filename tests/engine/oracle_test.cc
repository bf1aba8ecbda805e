// Random programs against a serial interpreter (random_program.h, machine.h, player.h).
//
// In the first tests the pushing threads agree on an order by a mutex around each push, or each graph, and the outcome
// must be the interpreter's, poison and versions included. In the last they do not: there must be some order that
// explains what every op saw, and that keeps each thread's own.
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "player.h"

namespace windrow::testing {
namespace {

constexpr std::uint64_t seed_of_all = 20240611;

struct OracleCase {
  Setup setup;
  int pushers;
};

std::vector<OracleCase> cases() {
  std::vector<OracleCase> result;
  for (const Setup& setup : every_setup) {
    for (const int pushers : {1, 2, 8}) result.push_back({setup, pushers});
  }
  return result;
}

class Oracle : public ::testing::TestWithParam<OracleCase> {
 protected:
  static EngineOptions options() { return {.policy = GetParam().setup.policy, .workers = GetParam().setup.workers}; }

  static std::uint64_t seed() {
    const std::uint64_t seed = seed_of_all + static_cast<std::uint64_t>(GetParam().pushers);
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    return seed;
  }

  static void expect_serial_outcome(std::size_t steps, const Features& features) {
    EXPECT_EQ(play(options(), {seed(), steps, GetParam().pushers, features}).difference, "");
  }
};

INSTANTIATE_TEST_SUITE_P(All, Oracle, ::testing::ValuesIn(cases()), [](const auto& test) {
  return std::string(to_string(test.param.setup.policy)) + "_" + std::to_string(test.param.setup.workers) +
         "_workers_" + std::to_string(test.param.pushers) + "_pushers";
});

TEST_P(Oracle, TheResultIsThatOfTheSerialOrder) { expect_serial_outcome(1000, {.slow_one_in = 4}); }

TEST_P(Oracle, TheSameWithOrderedLanes) { expect_serial_outcome(800, {.lanes = 3, .slow_one_in = 8}); }

TEST_P(Oracle, TheSameWithGraphs) { expect_serial_outcome(1000, {.graphs = true, .slow_one_in = 20}); }

TEST_P(Oracle, TheSameWithGraphsAndOrderedLanes) {
  expect_serial_outcome(500, {.lanes = 3, .graphs = true, .slow_one_in = 8});
}

TEST_P(Oracle, TheSameWithGraphsThatNeverFail) {
  expect_serial_outcome(1500, {.failures = false, .waits = false, .graphs = true, .slow_one_in = 20});
}

/// A million ops, over all policies.
TEST_P(Oracle, TheSameInLongPrograms) {
  expect_serial_outcome(1 + WINDROW_ORACLE_OPS / cases().size(), {.slow_one_in = 200});
}

/// Another million.
TEST_P(Oracle, TheSameInLongProgramsWithGraphs) {
  expect_serial_outcome(1 + WINDROW_ORACLE_OPS / cases().size(), {.graphs = true, .slow_one_in = 200});
}

/// Finds an order of the steps in which each saw what it saw; empty if there is none.
std::vector<int> explaining_order(const std::vector<Step>& steps, const std::vector<Sight>& sights, int pushers) {
  const std::size_t n = steps.size();
  std::vector<std::vector<int>> after(n);
  std::vector<int> before(n);
  const auto edge = [&](int from, int to) {
    after[static_cast<std::size_t>(from)].push_back(to);
    ++before[static_cast<std::size_t>(to)];
  };
  for (std::size_t i = static_cast<std::size_t>(pushers); i < n; ++i)
    edge(static_cast<int>(i) - pushers, static_cast<int>(i));
  for (int v = 0; v < variables; ++v) {
    // Who saw which writer of v: readers, and the one next writer.
    std::vector<std::vector<int>> readers(n + 1);
    std::vector<int> next_writer(n + 1, -1);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = 0; k < steps[i].accesses.size(); ++k) {
        if (steps[i].accesses[k].first != v) continue;
        const std::size_t seen = static_cast<std::size_t>(sights[i].writers[k] + 1);
        if (seen > 0) edge(static_cast<int>(seen) - 1, static_cast<int>(i));
        if (steps[i].accesses[k].second == AccessKind::read) {
          readers[seen].push_back(static_cast<int>(i));
        } else {
          if (next_writer[seen] >= 0) return {};  // two wrote over the same value: one was lost
          next_writer[seen] = static_cast<int>(i);
        }
      }
    }
    for (std::size_t seen = 0; seen <= n; ++seen) {
      for (const int reader : readers[seen]) {
        if (next_writer[seen] >= 0) edge(reader, next_writer[seen]);
      }
    }
  }
  std::vector<int> order;
  for (std::size_t i = 0; i < n; ++i) {
    if (before[i] == 0) order.push_back(static_cast<int>(i));
  }
  for (std::size_t done = 0; done < order.size(); ++done) {
    for (const int next : after[static_cast<std::size_t>(order[done])]) {
      if (--before[static_cast<std::size_t>(next)] == 0) order.push_back(next);
    }
  }
  return order.size() == n ? order : std::vector<int>();
}

TEST_P(Oracle, PushesThatAgreeOnNothingStillHaveAnOrder) {
  const auto steps =
      random_program(seed(), 1500, {.failures = false, .waits = false, .commute = false, .slow_one_in = 4});
  Machine machine(options(), 0, steps.size());
  const int pushers = GetParam().pushers;
  on_threads(pushers, [&](int t) {
    for (auto i = static_cast<std::size_t>(t); i < steps.size(); i += static_cast<std::size_t>(pushers)) {
      machine.push(steps[i]);
    }
  });
  ASSERT_TRUE(machine.engine.wait_all_for(patience));
  for (const Sight& sight : machine.sights) ASSERT_TRUE(sight.ran);
  const std::vector<int> order = explaining_order(steps, machine.sights, pushers);
  ASSERT_EQ(order.size(), steps.size()) << "no serial order explains what the ops saw";
  Interpreter expected;
  for (const int i : order) expected.run(steps[static_cast<std::size_t>(i)]);
  EXPECT_EQ(difference(machine, expected), "");
}

}  // namespace
}  // namespace windrow::testing
