// Random programs, and a slow and simple interpreter for them.
//
// A program is a list of steps over a hundred variables. Steps are ops, retires, heals, and waits with and without a
// limit. Ops read, mutate, overwrite and commute; they throw, complete asynchronously, run always, push and wait
// inside, run on other lanes, are cancelled, and cancel others. Each variable guards a cell that is not atomic, so an
// ordering mistake causes a wrong value here and a report under ThreadSanitizer.
//
// To add a kind of step, extend random_step, Machine::push (machine.h) and Interpreter::run.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/mix.h"
#include "windrow/engine/var.h"

namespace windrow::testing {

inline constexpr int variables = 100;

enum class Body {
  plain,
  async,
  async_elsewhere,
  nested,
  polls,
  declared,
  fails,
  drops_token,
  cancels,        // throws Cancelled
  async_cancels,  // passes Cancelled to its OnComplete
  on_lane,
  async_on_lane
};

/// Which stop token a step gets. Each life of a variable has one stop source. A step that requests the stop writes the
/// variable, and a step that gets the token accesses the variable, so their order determines which steps are cancelled.
enum class Stop {
  none,
  requested,         // the stop is requested before the push
  of_first_variable  // a step before, beside or after this one may request the stop
};

struct Step {
  enum class Kind { op, retire, heal, wait, wait_for } kind = Kind::op;
  Body body = Body::plain;
  Stop stop = Stop::none;
  int id = 0;
  bool requests_stop = false;  // when it runs, of its first variable, which it writes
  bool run_always = false;
  int priority = 0;
  int lane = 0;
  std::vector<std::pair<int, AccessKind>> accesses = {};  // each variable once
};

struct Features {
  bool failures = true;  // throw, drop, cancel, heal, run_always, retire
  int lanes = 0;         // ordered lanes to use
  bool waits = true;     // steps that wait
  bool graphs = false;   // steps may be captured and run again
  bool commute = true;   // else each step tells its writers apart
  /// One in this many ops passes work to another thread and waits for it, which costs as much as a hundred other ops.
  unsigned slow_one_in = 2;
};

inline bool is_wait(const Step& step) { return step.kind == Step::Kind::wait || step.kind == Step::Kind::wait_for; }
inline bool is_retire(const Step& step) { return step.kind == Step::Kind::retire; }
inline bool writes(const std::pair<int, AccessKind>& access) { return access.second != AccessKind::read; }

/// Makes a step write if it only reads. Otherwise two runs of the step could overlap, and each step records what it has
/// seen in one place.
inline void give_a_write(Step& step, std::mt19937_64& random) {
  if (is_wait(step) || std::any_of(step.accesses.begin(), step.accesses.end(), writes)) return;
  const int v = static_cast<int>(random() % variables);
  std::erase_if(step.accesses, [&](const auto& access) { return access.first == v; });
  step.accesses.emplace_back(v, AccessKind::mutate);
}

inline void draw_stop(Step& step, std::mt19937_64& random) {
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  if (one_in(40)) step.stop = Stop::requested;
  if (step.accesses.empty()) return;
  if (one_in(6)) step.stop = Stop::of_first_variable;
  step.requests_stop = writes(step.accesses[0]) && one_in(10);
}

inline Step random_step(std::mt19937_64& random, int id, const Features& features) {
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  Step step{.id = id, .run_always = features.failures && one_in(10), .priority = static_cast<int>(random() % 3)};
  std::array<bool, variables> used{};
  for (std::size_t i = random() % 5; i > 0; --i) {
    const int v = static_cast<int>(random() % variables);
    if (std::exchange(used[static_cast<std::size_t>(v)], true)) continue;
    const AccessKind kinds[] = {AccessKind::read, AccessKind::read, AccessKind::mutate, AccessKind::overwrite};
    step.accesses.emplace_back(v, kinds[random() % 4]);
  }
  if (features.failures) draw_stop(step, random);
  if (features.failures && one_in(6)) {
    step.kind = one_in(4) ? Step::Kind::retire : Step::Kind::heal;
    step.accesses = {{static_cast<int>(random() % variables), AccessKind::overwrite}};
    return step;
  }
  if (features.waits && one_in(10 * features.slow_one_in)) {
    step.kind = one_in(2) ? Step::Kind::wait : Step::Kind::wait_for;
    return step;
  }
  constexpr Body quick[] = {Body::plain, Body::plain, Body::plain, Body::async, Body::declared};
  if (features.commute && one_in(6)) {
    // A single access and no failure, because the effects must not depend on which op has its turn first.
    step = {.body = quick[random() % std::size(quick)], .id = id, .priority = step.priority};
    step.accesses = {{static_cast<int>(random() % variables), AccessKind::commute}};
    return step;
  }
  constexpr Body slow[] = {Body::async_elsewhere, Body::nested, Body::polls};
  step.body = one_in(features.slow_one_in) ? slow[random() % std::size(slow)] : quick[random() % std::size(quick)];
  constexpr Body failing[] = {Body::fails, Body::drops_token, Body::cancels, Body::async_cancels};
  if (features.failures && one_in(16)) step.body = failing[random() % std::size(failing)];
  if (features.lanes > 0 && one_in(3)) {
    step.body = one_in(3) ? Body::async_on_lane : Body::on_lane;
    step.lane = static_cast<int>(random() % static_cast<unsigned>(features.lanes));
  }
  if (features.graphs) give_a_write(step, random);
  return step;
}

/// The value that a variable guards, and the step that wrote it last.
struct Cell {
  std::uint64_t value = 0;
  int last_writer = -1;
};

/// What one step saw. An op records the previous writer of each variable that it accesses; a wait records whether it
/// reported poison.
struct Sight {
  bool ran = false;  // for a wait: it has finished
  bool poisoned = false;
  std::vector<int> writers;
};

/// The last writer of a cell on which ops have commuted, since the last one is unknown.
inline constexpr int some_of_several = -2;

/// Applies a step to the cells that it was granted.
inline void apply(const Step& step, const std::vector<Cell*>& cells, Sight& sight) {
  sight.ran = true;
  if (step.accesses.size() == 1 && step.accesses[0].second == AccessKind::commute) {
    cells[0]->value += mix(1, static_cast<std::uint64_t>(step.id));
    cells[0]->last_writer = some_of_several;
    return;
  }
  std::uint64_t hash = static_cast<std::uint64_t>(step.id);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (step.accesses[i].second != AccessKind::overwrite) hash = mix(hash, cells[i]->value);
    sight.writers.push_back(cells[i]->last_writer);
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (step.accesses[i].second == AccessKind::read) continue;
    cells[i]->value = mix(hash, i);
    cells[i]->last_writer = step.id;
  }
}

/// How an op ends.
enum class StepOutcome { ran, failed, cancelled, skipped };

/// Runs one step after the other.
class Interpreter {
 public:
  struct State {
    Cell cell;
    bool poisoned = false;
    bool stop_requested = false;
    std::uint64_t version = 0;
  };

  /// Returns whether the step meets poison.
  bool run(const Step& step) {
    if (is_retire(step)) {
      state(step.accesses[0]) = {};
      return false;
    }
    const bool poisoned = meets_poison(step);
    if (is_wait(step)) return poisoned;
    const StepOutcome outcome = poisoned && !step.run_always ? StepOutcome::skipped : start(step);
    ++outcomes[static_cast<std::size_t>(outcome)];
    if (outcome == StepOutcome::ran && step.kind == Step::Kind::op) apply_to_cells(step);
    for (const auto& access : step.accesses) {
      if (writes(access)) settle(state(access), access.second, outcome);
    }
    return poisoned;
  }

  std::uint64_t count(StepOutcome outcome) const { return outcomes[static_cast<std::size_t>(outcome)]; }

  std::array<State, variables> states;
  std::array<std::uint64_t, 4> outcomes{};

 private:
  State& state(const std::pair<int, AccessKind>& access) { return states[static_cast<std::size_t>(access.first)]; }

  bool meets_poison(const Step& step) {
    return std::any_of(step.accesses.begin(), step.accesses.end(), [&](const auto& access) {
      return access.second != AccessKind::overwrite && state(access).poisoned;
    });
  }

  bool is_called_off(const Step& step) {
    if (step.run_always || step.stop == Stop::none) return false;
    return step.stop == Stop::requested || state(step.accesses[0]).stop_requested;
  }

  StepOutcome start(const Step& step) {
    if (step.kind == Step::Kind::heal) return StepOutcome::ran;
    if (is_called_off(step)) return StepOutcome::cancelled;
    if (step.requests_stop) state(step.accesses[0]).stop_requested = true;
    if (step.body == Body::fails || step.body == Body::drops_token) return StepOutcome::failed;
    if (step.body == Body::cancels || step.body == Body::async_cancels) return StepOutcome::cancelled;
    return StepOutcome::ran;
  }

  void apply_to_cells(const Step& step) {
    std::vector<Cell*> cells;
    for (const auto& access : step.accesses) cells.push_back(&state(access).cell);
    Sight sight;
    apply(step, cells, sight);
  }

  static void settle(State& state, AccessKind kind, StepOutcome outcome) {
    if (outcome == StepOutcome::ran || outcome == StepOutcome::failed) ++state.version;
    if (outcome != StepOutcome::ran) {
      state.poisoned = true;
    } else if (kind == AccessKind::overwrite) {
      state.poisoned = false;
    }
  }
};

}  // namespace windrow::testing
