// Random programs on an engine, and whether their outcome is the interpreter's.
#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "random_program.h"
#include "sim_device.h"
#include "support.h"

namespace windrow::testing {

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
    if (step.kind == Step::Kind::wait) return wait(accesses, patience, sight);
    if (step.kind == Step::Kind::wait_for) return wait(accesses, std::chrono::microseconds(step.id % 100), sight);
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
        return engine.push([this, work] { wait_inside(work, [](Engine& of, Var var) { of.wait(var); }); }, accesses,
                           options);
      case Body::polls:
        return engine.push([this, work] { wait_inside(work, poll); }, accesses, options);
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

  void wait(AccessList accesses, std::chrono::nanoseconds limit, Sight& sight) {
    try {
      sight.ran = engine.wait_for(accesses, limit);
    } catch (const OpError&) {
      sight.ran = sight.poisoned = true;
    }
  }

  /// With growing limits: an op that polls takes its worker's place again each time.
  static void poll(Engine& engine, Var var) {
    auto limit = std::chrono::microseconds(20);
    while (!engine.wait_for({read(var)}, limit)) limit *= 2;
  }

  /// Does the work in an op of its own, and waits for it.
  template <class Work, class Wait>
  void wait_inside(const Work& work, const Wait& wait_for_var) {
    const Var inner = engine.new_var();
    engine.push(work, {mutate(inner)});
    wait_for_var(engine, inner);
    engine.retire(inner);
  }
};

inline std::vector<Step> random_program(std::uint64_t seed, std::size_t steps, const Features& features) {
  std::mt19937_64 random(seed);
  std::vector<Step> program;
  for (std::size_t id = 0; id < steps; ++id) program.push_back(random_step(random, static_cast<int>(id), features));
  return program;
}

/// Pushes the steps, dealt out to the pushing threads, with a mutex around each push. Returns the order.
inline std::vector<std::size_t> push_in_agreed_order(Machine& machine, const std::vector<Step>& steps, int pushers) {
  std::mutex mutex;
  std::vector<std::size_t> order;
  std::vector<std::jthread> threads;
  for (int t = 0; t < pushers; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = static_cast<std::size_t>(t); i < steps.size(); i += static_cast<std::size_t>(pushers)) {
        std::lock_guard lock(mutex);
        order.push_back(i);
        machine.push(steps[i]);
      }
    });
  }
  threads.clear();
  return order;
}

/// What differs between the engine's state, once nothing is pending, and the interpreter's; empty if nothing does.
inline std::string difference(Machine& machine, const Interpreter& expected) {
  try {
    if (!machine.engine.wait_all_for(patience)) return "ops are pending for ever";
  } catch (const OpError&) {
    // Which variables are poisoned is compared below.
  }
  if (machine.engine.stats().pending != 0) return "ops are pending after a wait for all";
  for (std::size_t v = 0; v < variables; ++v) {
    const Machine::Slot& slot = machine.slots[v];
    bool poisoned = false;
    try {
      machine.engine.wait(slot.var);
    } catch (const OpError&) {
      poisoned = true;
    }
    const Interpreter::State& state = expected.states[v];
    const std::string at = " of variable " + std::to_string(v);
    if (poisoned != state.poisoned) return "the poison" + at;
    if (slot.cell->value != state.cell.value) return "the value" + at;
    if (machine.engine.version(slot.var) != state.version) return "the version" + at;
  }
  return {};
}

/// Runs the steps on both in the order in which they were pushed; what waits were told is compared too.
inline std::string difference_in_order(Machine& machine, const std::vector<Step>& steps,
                                       const std::vector<std::size_t>& order) {
  Interpreter expected;
  std::string told;
  for (const std::size_t i : order) {
    const bool poisoned = expected.run(steps[i]);
    const bool waits = steps[i].kind == Step::Kind::wait || steps[i].kind == Step::Kind::wait_for;
    if (!waits || !machine.sights[i].ran) continue;
    if (machine.sights[i].poisoned != poisoned) told = "what the wait of step " + std::to_string(i) + " was told";
  }
  const std::string at_end = difference(machine, expected);
  return told.empty() ? at_end : told;
}

}  // namespace windrow::testing
