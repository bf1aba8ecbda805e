// Random programs against a serial interpreter (random_program.h).
//
// In the first test the pushing threads agree on an order by a mutex around each push, and the outcome must be the
// interpreter's, poison and versions included. In the second they do not: there must be some order that explains what
// every op saw, and that keeps each thread's own.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "random_program.h"
#include "sim_device.h"
#include "support.h"

namespace windrow::testing {
namespace {

constexpr std::uint64_t seed_of_all = 20240611;

/// Threads on which async ops complete.
class Elsewhere {
 public:
  Elsewhere() : thread_([this](std::stop_token stop) { serve(stop); }) {}
  void post(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    posted_.notify_all();
  }

 private:
  void serve(std::stop_token stop) {
    std::unique_lock lock(mutex_);
    while (posted_.wait(lock, stop, [&] { return !work_.empty(); })) {
      const auto work = std::move(work_.back());
      work_.pop_back();
      lock.unlock();
      work();
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable_any posted_;
  std::vector<std::function<void()>> work_;
  std::jthread thread_;
};

/// The program on the engine under test.
class Machine {
 public:
  Machine(EngineOptions options, int lanes, std::size_t steps) : engine(std::move(options)), sights(steps) {
    for (int i = 0; i < lanes; ++i) {
      // Lanes of one device can wait for each other; the third is on another.
      sims.push_back(std::make_shared<SimLane>("sim", i < 2 ? 1 : 2));
      ids.push_back(engine.add_lane(sims.back()));
    }
    for (auto& slot : slots) slot = {engine.new_var(), std::make_shared<Cell>()};
  }

  void push(const Step& step) {
    Sight& sight = sights[static_cast<std::size_t>(step.id)];
    std::vector<Access> accesses;
    std::vector<Cell*> cells;
    for (const auto& [v, kind] : step.accesses) {
      const Slot& slot = slots[static_cast<std::size_t>(v)];
      accesses.push_back({slot.var, kind});
      cells.push_back(slot.cell.get());
    }
    if (step.kind == Step::Kind::retire) return renew(slots[static_cast<std::size_t>(step.accesses[0].first)]);
    if (step.kind == Step::Kind::heal) return engine.heal(accesses[0].var);
    auto work = [&step, &sight, cells] { apply(step, cells, sight); };
    const PushOptions options{.name = "step", .priority = step.priority, .run_always = step.run_always};
    switch (step.body) {
      case Body::plain:
        return engine.push(work, accesses, options);
      case Body::declared:
        return engine.push(engine.declare(work, accesses, options));
      case Body::async:
        return engine.push_async([work](OnComplete done) { work(), done(); }, accesses, options);
      case Body::async_elsewhere:
        return engine.push_async(
            [this, work](OnComplete done) {
              elsewhere.post([work, token = std::make_shared<OnComplete>(std::move(done))] { work(), (*token)(); });
            },
            accesses, options);
      case Body::nested:
        return engine.push([this, work] { wait_inside(work); }, accesses, options);
      case Body::fails:
        return engine.push([] { throw std::runtime_error("planned"); }, accesses, options);
      case Body::drops_token:
        return engine.push_async([](OnComplete) {}, accesses, options);
      case Body::on_lane: {
        PushOptions on_lane = options;
        on_lane.lane = ids[static_cast<std::size_t>(step.lane)];
        return engine.push([work, lane = sims[static_cast<std::size_t>(step.lane)]] { lane->launch(work); }, accesses,
                           on_lane);
      }
      case Body::async_on_lane: {
        PushOptions on_lane = options;
        on_lane.lane = ids[static_cast<std::size_t>(step.lane)];
        return engine.push_async(
            [work, lane = sims[static_cast<std::size_t>(step.lane)]](OnComplete done) {
              lane->launch([work, token = std::make_shared<OnComplete>(std::move(done))] { work(), (*token)(); });
            },
            accesses, on_lane);
      }
    }
  }

  struct Slot {
    Var var;
    std::shared_ptr<Cell> cell;
  };
  std::vector<std::shared_ptr<SimLane>> sims;
  std::vector<LaneId> ids;
  Elsewhere elsewhere;
  Engine engine;  // drains before the lanes and threads above end
  std::array<Slot, variables> slots;
  std::vector<Sight> sights;

 private:
  void renew(Slot& slot) {
    engine.retire(slot.var, [cell = std::move(slot.cell)]() mutable { cell.reset(); });
    slot = {engine.new_var(), std::make_shared<Cell>()};
  }

  /// Does the work in an op of its own, and waits for it.
  template <class Work>
  void wait_inside(const Work& work) {
    const Var inner = engine.new_var();
    engine.push(work, {mutate(inner)});
    engine.wait(inner);
    engine.retire(inner);
  }
};

struct Case {
  Setup setup;
  int pushers;
};

std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Setup& setup : every_setup) {
    for (const int pushers : {1, 2, 8}) result.push_back({setup, pushers});
  }
  return result;
}

class Oracle : public ::testing::TestWithParam<Case> {
 protected:
  static EngineOptions options() { return {.policy = GetParam().setup.policy, .workers = GetParam().setup.workers}; }

  static std::vector<Step> program(int steps, const Features& features) {
    const std::uint64_t seed = seed_of_all + static_cast<std::uint64_t>(GetParam().pushers);
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    std::vector<Step> result;
    for (int id = 0; id < steps; ++id) result.push_back(random_step(random, id, features));
    return result;
  }

  /// Pushes the steps, dealt out to the pushing threads, with a mutex around each push. Returns the order.
  static std::vector<int> push_in_agreed_order(Machine& machine, const std::vector<Step>& steps) {
    std::mutex mutex;
    std::vector<int> order;
    const int pushers = GetParam().pushers;
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < pushers; ++t) {
        threads.emplace_back([&, t] {
          for (std::size_t i = static_cast<std::size_t>(t); i < steps.size(); i += static_cast<std::size_t>(pushers)) {
            std::lock_guard lock(mutex);
            order.push_back(static_cast<int>(i));
            machine.push(steps[i]);
          }
        });
      }
    }
    return order;
  }

  static void expect_same(Machine& machine, const Interpreter& expected) {
    try {
      EXPECT_TRUE(machine.engine.wait_all_for(patience));
    } catch (const OpError&) {
      // Which variables are poisoned is compared below.
    }
    EXPECT_EQ(machine.engine.stats().pending, 0u);
    for (std::size_t v = 0; v < variables; ++v) {
      const Machine::Slot& slot = machine.slots[v];
      bool poisoned = false;
      try {
        machine.engine.wait(slot.var);
      } catch (const OpError&) {
        poisoned = true;
      }
      const Interpreter::State& state = expected.states[v];
      ASSERT_EQ(poisoned, state.poisoned) << "variable " << v;
      ASSERT_EQ(slot.cell->value, state.cell.value) << "variable " << v;
      ASSERT_EQ(machine.engine.version(slot.var), state.version) << "variable " << v;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, Oracle, ::testing::ValuesIn(cases()), [](const auto& test) {
  return std::string(to_string(test.param.setup.policy)) + "_" + std::to_string(test.param.setup.workers) +
         "_workers_" + std::to_string(test.param.pushers) + "_pushers";
});

TEST_P(Oracle, TheResultIsThatOfTheSerialOrder) {
  const auto steps = program(1500, {});
  Machine machine(options(), 0, steps.size());
  Interpreter expected;
  for (const int i : push_in_agreed_order(machine, steps)) expected.run(steps[static_cast<std::size_t>(i)]);
  expect_same(machine, expected);
}

TEST_P(Oracle, TheSameWithOrderedLanes) {
  const auto steps = program(800, {.lanes = 3});
  Machine machine(options(), 3, steps.size());
  Interpreter expected;
  for (const int i : push_in_agreed_order(machine, steps)) expected.run(steps[static_cast<std::size_t>(i)]);
  expect_same(machine, expected);
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
  const auto steps = program(1500, {.failures = false});
  Machine machine(options(), 0, steps.size());
  const int pushers = GetParam().pushers;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < pushers; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = static_cast<std::size_t>(t); i < steps.size(); i += static_cast<std::size_t>(pushers)) {
          machine.push(steps[i]);
        }
      });
    }
  }
  ASSERT_TRUE(machine.engine.wait_all_for(patience));
  for (const Sight& sight : machine.sights) ASSERT_TRUE(sight.ran);
  const std::vector<int> order = explaining_order(steps, machine.sights, pushers);
  ASSERT_EQ(order.size(), steps.size()) << "no serial order explains what the ops saw";
  Interpreter expected;
  for (const int i : order) expected.run(steps[static_cast<std::size_t>(i)]);
  expect_same(machine, expected);
}

}  // namespace
}  // namespace windrow::testing
