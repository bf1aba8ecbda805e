// Random programs against a serial interpreter (random_program.h, machine.h).
//
// In the first tests the pushing threads agree on an order by a mutex around each push, or each graph, and the outcome
// must be the interpreter's, poison and versions included. In the last they do not: there must be some order that
// explains what every op saw, and that keeps each thread's own.
#include <cstdlib>

#include "machine.h"
#include "read_trace.h"
#include "tests/seed.h"
#include "windrow/engine/trace.h"

namespace windrow::testing {
namespace {

constexpr std::uint64_t seed_of_all = 20240611;

/// With so many threads that push.
constexpr int pusher_counts[] = {1, 2, 8};

class Oracle : public EveryPolicy {
 protected:
  static std::uint64_t seed(int pushers) { return seed_of_all + static_cast<std::uint64_t>(pushers); }

  static void expect_serial_outcome(std::size_t steps, const Features& features) {
    for (const int pushers : pusher_counts) {
      EXPECT_EQ(play(options(), {seed(pushers), steps, pushers, features}).difference, "")
          << pushers << " threads, seed " << seed(pushers);
    }
  }
};
WINDROW_EVERY_POLICY(Oracle);

constexpr std::size_t steps_of_long_ones = 1 + WINDROW_ORACLE_OPS / (std::size(every_setup) * std::size(pusher_counts));

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
TEST_P(Oracle, TheSameInLongPrograms) { expect_serial_outcome(steps_of_long_ones, {.slow_one_in = 200}); }

/// Another million.
TEST_P(Oracle, TheSameInLongProgramsWithGraphs) {
  expect_serial_outcome(steps_of_long_ones, {.graphs = true, .slow_one_in = 200});
}

/// Programs of random shapes, until WINDROW_TEST_OPS ops have run.
TEST(OracleOfRandomShapes, TheResultIsThatOfTheSerialOrder) {
  const char* const given = std::getenv("WINDROW_TEST_OPS");
  double left = given == nullptr ? 1e4 : std::strtod(given, nullptr);
  ASSERT_GT(left, 0) << "WINDROW_TEST_OPS: " << given << "; expected a number of ops";
  for (std::uint64_t seed = first_seed(); left > 0 && !HasFailure(); ++seed) {
    SCOPED_TRACE("alone with WINDROW_TEST_OPS=1 WINDROW_TEST_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto& setup = every_setup[random() % std::size(every_setup)];
    const Play how{.seed = seed,
                   .steps = 500 + random() % 10000,
                   .pushers = static_cast<int>(1 + random() % 8),
                   .features = {.failures = random() % 8 != 0,
                                .lanes = random() % 4 == 0 ? 3 : 0,
                                .graphs = random() % 2 == 0,
                                .slow_one_in = 20u << random() % 5}};
    const Played played = play({.policy = setup.policy, .workers = setup.workers, .chaos_seed = seed}, how);
    EXPECT_EQ(played.difference, "") << to_string(setup.policy) << ", " << setup.workers << " workers";
    left -= static_cast<double>(played.ops);
  }
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
  for (const int pushers : pusher_counts) {
    SCOPED_TRACE(std::to_string(pushers) + " threads, seed " + std::to_string(seed(pushers)));
    const auto steps =
        random_program(seed(pushers), 1500, {.failures = false, .waits = false, .commute = false, .slow_one_in = 4});
    Machine machine(options(), 0, steps.size());
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
}

// Random programs: their traces hold each op once, and the arrows that one op after the other would give.

class TraceOracle : public EveryPolicy {};
WINDROW_EVERY_POLICY(TraceOracle);

/// The rule of arrows, one op after the other.
class ArrowOracle {
 public:
  void push(const std::string& op, const std::vector<std::pair<int, AccessKind>>& accesses) {
    for (const auto& [v, kind] : accesses) {
      State& state = states_[v];
      if (kind == AccessKind::read) {
        if (!state.writer.empty()) arrows.emplace(state.writer, op);
        state.readers.push_back(op);
        continue;
      }
      for (const std::string& reader : state.readers) arrows.emplace(reader, op);
      if (state.readers.empty() && !state.writer.empty()) arrows.emplace(state.writer, op);
      state = {op, {}};
    }
  }
  void retire(const std::string& op, int v) {
    push(op, {{v, AccessKind::overwrite}});
    states_.erase(v);
  }

  Arrows arrows;

 private:
  struct State {
    std::string writer;
    std::vector<std::string> readers;
  };
  std::map<int, State> states_;
};

/// Pushes the steps, or captures and launches some at a time.
void push_steps(Machine& machine, const std::vector<Step>& steps, bool captured) {
  for (std::size_t i = 0; i < steps.size();) {
    const std::size_t end = captured ? std::min(steps.size(), i + 1 + i % 20) : steps.size();
    const auto push = [&] {
      for (; i < end; ++i) machine.push(steps[i]);
    };
    captured ? machine.engine.capture(push).launch() : push();
  }
}

void expect_each_op_and_its_arrows(const EngineOptions& options, bool captured) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::vector<Step> steps =
        random_program(seed, 600, {.waits = !captured, .commute = false, .slow_one_in = 20});
    Machine machine(options, 0, steps.size());
    machine.named = true;
    machine.engine.trace().start({.all_arrows = true});
    push_steps(machine, steps, captured);
    EXPECT_THROW(machine.engine.wait_all(), OpError);
    machine.engine.trace().stop();
    ReadTrace trace = read_trace(machine.engine);
    ArrowOracle oracle;
    std::multiset<std::string> expected, names;
    for (const Step& step : steps) {
      if (is_wait(step)) continue;
      const std::string name = Machine::name_of(step);
      expected.insert(name);
      is_retire(step) ? oracle.retire(name, step.accesses[0].first) : oracle.push(name, step.accesses);
    }
    // Not those that an op pushes, nor those by which graphs retire variables of their own.
    for (const auto& op : trace.ops) {
      if (op.name.starts_with("step ")) names.insert(op.name);
    }
    std::erase_if(trace.arrows, [](const auto& arrow) {
      return !arrow.first.starts_with("step ") || !arrow.second.starts_with("step ");
    });
    EXPECT_EQ(names, expected);
    EXPECT_EQ(trace.arrows, oracle.arrows);
  }
}

TEST_P(TraceOracle, HoldsEachOpOnceWithAnArrowForEachDirectDependencyAndNoOther) {
  expect_each_op_and_its_arrows(options(), false);
}

TEST_P(TraceOracle, HoldsTheOpsOfGraphsOneByOneAndTheirArrows) { expect_each_op_and_its_arrows(options(), true); }

}  // namespace
}  // namespace windrow::testing
