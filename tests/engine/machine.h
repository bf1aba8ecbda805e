// Runs random programs on an engine, and compares the outcome with the interpreter's. Some pieces of a program are
// pushed; others are captured and launched, once or several times.
#pragma once

#include <random>
#include <span>

#include "random_program.h"
#include "sim_device.h"
#include "support.h"

namespace windrow::testing {

/// Runs a program on the engine under test.
class Machine {
 public:
  Machine(EngineOptions options, int lanes, std::size_t steps) : engine(std::move(options)), sights(steps) {
    for (int i = 0; i < lanes; ++i) {
      // Lanes of one device can wait for each other. From the third on, lanes belong to another device.
      sims.push_back(std::make_shared<SimLane>("sim", i < 2 ? 1 : 2));
      ids.push_back(engine.add_lane(sims.back()));
    }
    for (auto& slot : slots) slot = fresh();
  }

  static std::string name_of(const Step& step) { return "step " + std::to_string(step.id); }

  void push(const Step& step) {
    const std::vector<Access> accesses = accesses_of(step);
    Sight& sight = sights[static_cast<std::size_t>(step.id)];
    const std::stop_token stop =
        step.stop == Stop::of_first_variable ? slot(step.accesses[0]).stop.get_token() : stopped();
    PushOptions options{
        .name = named ? OpName(name_of(step)) : "step", .priority = step.priority, .run_always = step.run_always};
    if (step.stop != Stop::none) options.stop = stop;
    switch (step.kind) {
      case Step::Kind::op:
        return push_op(step, accesses, options);
      case Step::Kind::retire:
        return renew(slot(step.accesses[0]), options);
      case Step::Kind::heal:
        return engine.heal(accesses[0].var, options);
      case Step::Kind::wait:
        return wait(accesses, patience, sight);
      case Step::Kind::wait_for:
        return wait(accesses, std::chrono::microseconds(step.id % 100), sight);
    }
  }

  struct Slot {
    Var var;
    std::shared_ptr<Cell> cell;
    std::stop_source stop;
  };
  std::vector<std::shared_ptr<SimLane>> sims;
  std::vector<LaneId> ids;
  SimLane elsewhere[2] = {SimLane("one"), SimLane("two")};  // threads on which async ops complete, out of order
  Engine engine;  // declared below the lanes and threads, so that it drains before they end
  std::array<Slot, variables> slots;
  std::vector<Sight> sights;
  bool named = false;  // each op by its step

 private:
  /// The body of a step's op: begin() requests the stop, if the step does so; end() applies the step to its cells.
  struct Work {
    const Step* step;
    Sight* sight;
    std::vector<Cell*> cells;
    std::stop_source to_stop;  // without a state if the step requests no stop

    void begin() const { to_stop.request_stop(); }
    void end() const { apply(*step, cells, *sight); }
    void operator()() const { begin(), end(); }
  };

  Slot& slot(const std::pair<int, AccessKind>& access) { return slots[static_cast<std::size_t>(access.first)]; }
  Slot fresh() { return {engine.new_var(), std::make_shared<Cell>(), {}}; }

  std::vector<Access> accesses_of(const Step& step) {
    std::vector<Access> accesses;
    for (const auto& access : step.accesses) accesses.push_back({slot(access).var, access.second});
    return accesses;
  }

  Work work_of(const Step& step) {
    Work work{&step, &sights[static_cast<std::size_t>(step.id)], {}, std::stop_source(std::nostopstate)};
    for (const auto& access : step.accesses) work.cells.push_back(slot(access).cell.get());
    if (step.requests_stop) work.to_stop = slot(step.accesses[0]).stop;
    return work;
  }

  void push_op(const Step& step, AccessList accesses, const PushOptions& options) {
    const Work work = work_of(step);
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
              work.begin();
              elsewhere[work.step->id % 2].launch(
                  [work, token = std::make_shared<OnComplete>(std::move(done))] { work.end(), (*token)(); });
            },
            accesses, options);
      case Body::nested:
        return engine.push([this, work] { wait_inside(work, [](Engine& of, Var var) { of.wait(var); }); }, accesses,
                           options);
      case Body::polls:
        return engine.push([this, work] { wait_inside(work, poll); }, accesses, options);
      case Body::fails:
        return engine.push([work] { work.begin(), throw std::runtime_error("planned"); }, accesses, options);
      case Body::drops_token:
        return engine.push_async([work](OnComplete) { work.begin(); }, accesses, options);
      case Body::cancels:
        return engine.push([work] { work.begin(), throw Cancelled(); }, accesses, options);
      case Body::async_cancels:
        return engine.push_async([work](OnComplete done) { work.begin(), done(std::make_exception_ptr(Cancelled())); },
                                 accesses, options);
      case Body::on_lane:
      case Body::async_on_lane:
        return push_on_lane(step, accesses, options);
    }
  }

  void push_on_lane(const Step& step, AccessList accesses, PushOptions options) {
    const auto lane = sims[static_cast<std::size_t>(step.lane)];
    const Work work = work_of(step);
    options.lane = ids[static_cast<std::size_t>(step.lane)];
    if (step.body == Body::on_lane) {
      return engine.push([work, lane] { work.begin(), lane->launch([work] { work.end(); }); }, accesses, options);
    }
    engine.push_async(
        [work, lane](OnComplete done) {
          work.begin();
          lane->launch([work, token = std::make_shared<OnComplete>(std::move(done))] { work.end(), (*token)(); });
        },
        accesses, options);
  }

  void renew(Slot& slot, const PushOptions& options) {
    engine.retire(
        slot.var, [cell = std::move(slot.cell)]() mutable { cell.reset(); }, options);
    slot = fresh();
  }

  void wait(AccessList accesses, std::chrono::nanoseconds limit, Sight& sight) {
    try {
      sight.ran = engine.wait_for(accesses, limit);
    } catch (const OpError&) {
      sight.ran = sight.poisoned = true;
    }
  }

  /// Waits with growing limits, because an op that polls takes its worker's slot again each time.
  static void poll(Engine& engine, Var var) {
    auto limit = std::chrono::microseconds(20);
    while (!engine.wait_for({read(var)}, limit)) limit *= 2;
  }

  /// Does the work in a nested op and waits for it.
  template <class Wait>
  void wait_inside(const Work& work, const Wait& wait_for_var) {
    work.begin();
    const Var inner = engine.new_var();
    engine.push([&] { work.end(); }, {mutate(inner)});
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

/// Distributes the turns below `count` over `threads` threads, which call take(turn) one at a time. Each thread takes
/// its own turns in order.
template <class Take>
void take_turns(int threads, std::size_t count, const Take& take) {
  std::mutex mutex;
  on_threads(threads, [&](int t) {
    for (auto i = static_cast<std::size_t>(t); i < count; i += static_cast<std::size_t>(threads)) {
      std::lock_guard lock(mutex);
      take(i);
    }
  });
}

/// Distributes the steps over the pushing threads, with a mutex around each push. Returns the order of the pushes.
inline std::vector<std::size_t> push_in_agreed_order(Machine& machine, const std::vector<Step>& steps, int pushers) {
  std::vector<std::size_t> order;
  take_turns(pushers, steps.size(), [&](std::size_t i) {
    order.push_back(i);
    machine.push(steps[i]);
  });
  return order;
}

/// Waits until nothing is pending, then compares the states of the engine and of the interpreter. Returns a description
/// of a difference, or an empty text.
inline std::string difference(Machine& machine, const Interpreter& expected) {
  try {
    if (!machine.engine.wait_all_for(patience)) return "ops are pending for ever";
  } catch (const OpError&) {
    // Which variables are poisoned is compared below.
  }
  const EngineStats stats = machine.engine.stats();
  if (stats.pending != 0) return "ops are pending after a wait for all";
  if (stats.failed != expected.count(StepOutcome::failed)) return "the count of failed ops";
  if (stats.cancelled != expected.count(StepOutcome::cancelled)) return "the count of cancelled ops";
  if (stats.skipped != expected.count(StepOutcome::skipped)) return "the count of skipped ops";
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

/// Runs the steps on the machine; they must not move. A captured graph is extended before its first launch, launched up
/// to three times at once, and launched again later, also inside another capture.
class Player {
 public:
  Player(Machine& machine, const std::vector<Step>& steps, std::uint64_t seed)
      : machine_(machine), steps_(steps), random_(seed) {}

  /// Distributes the pieces over the threads, which run them one at a time. Returns the order of the steps; a step that
  /// was launched several times occurs several times.
  std::vector<std::size_t> play(int pushers) {
    std::vector<Piece> pieces;
    for (Piece rest = steps_; !rest.empty(); rest = rest.subspan(pieces.back().size())) {
      pieces.push_back(rest.first(length_of_piece(rest)));
    }
    take_turns(pushers, pieces.size(), [&](std::size_t i) { play(pieces[i]); });
    return std::move(order_);
  }

 private:
  using Piece = std::span<const Step>;

  /// A graph that has been launched, and the piece that it was captured from.
  struct Kept {
    Graph graph;
    Piece piece;
    std::size_t retires_before;  ///< in the whole program, up to its capture
  };

  bool one_in(unsigned n) { return random_() % n == 0; }

  /// A wait is a piece of its own, because it cannot be captured.
  std::size_t length_of_piece(Piece steps) {
    if (is_wait(steps[0])) return 1;
    const std::size_t most = std::min<std::size_t>(steps.size(), 1 + random_() % (one_in(4) ? 200 : 20));
    const auto end = std::find_if(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(most), is_wait);
    return static_cast<std::size_t>(end - steps.begin());
  }

  void play(Piece piece) {
    if (one_in(5)) launch_again();
    if (is_wait(piece[0]) || one_in(3)) {
      push(piece);
      note(piece);
    } else {
      capture(piece);
    }
  }

  void push(Piece piece) {
    for (const Step& step : piece) machine_.push(step);
  }

  void note(Piece piece) {
    for (const Step& step : piece) {
      order_.push_back(static_cast<std::size_t>(step.id));
      retires_ += is_retire(step);
    }
  }

  void capture(Piece piece) {
    const std::size_t half = random_() % (piece.size() + 1);
    const Graph graph = machine_.engine.capture([&] { push(piece.first(half)); });
    graph.append([&] { push(piece.subspan(half)); });
    const bool retires = std::any_of(piece.begin(), piece.end(), is_retire);
    const std::uint64_t launches = retires ? 1 : 1 + random_() % 3;
    for (std::uint64_t i = 0; i < launches; ++i) {
      graph.launch();
      note(piece);
    }
    if (!retires) kept_.push_back({graph, piece, retires_});
    if (kept_.size() > 8) kept_.erase(kept_.begin());
  }

  void launch_again() {
    if (kept_.empty()) return;
    const Kept& kept = kept_[random_() % kept_.size()];
    if (kept.retires_before != retires_) return;  // one of its variables may have been retired
    if (one_in(2)) {
      kept.graph.launch();
    } else {
      machine_.engine.capture([&] { kept.graph.launch(); }).launch();
    }
    note(kept.piece);
  }

  Machine& machine_;
  const std::vector<Step>& steps_;
  std::mt19937_64 random_;
  std::vector<std::size_t> order_;
  std::vector<Kept> kept_;
  std::size_t retires_ = 0;
};

/// How to run a random program.
struct Play {
  std::uint64_t seed;
  std::size_t steps;
  int pushers;
  Features features;
};

struct Played {
  std::size_t ops = 0;     ///< steps that were run, each counted as often as it ran
  std::string difference;  ///< between the engine's outcome and the interpreter's; empty if there is none
};

/// Runs the steps on the interpreter in the order in which they were pushed, and compares the final states and what
/// each wait reported.
inline Played play(const EngineOptions& options, const Play& how) {
  const std::vector<Step> steps = random_program(how.seed, how.steps, how.features);
  Machine machine(options, how.features.lanes, steps.size());
  const std::vector<std::size_t> order = how.features.graphs ? Player(machine, steps, how.seed).play(how.pushers)
                                                             : push_in_agreed_order(machine, steps, how.pushers);
  Interpreter expected;
  std::string told;
  for (const std::size_t i : order) {
    const bool poisoned = expected.run(steps[i]);
    if (!is_wait(steps[i]) || !machine.sights[i].ran) continue;
    if (machine.sights[i].poisoned != poisoned) told = "what the wait of step " + std::to_string(i) + " was told";
  }
  const std::string at_end = difference(machine, expected);
  return {order.size(), told.empty() ? at_end : told};
}

}  // namespace windrow::testing
