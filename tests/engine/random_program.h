// Random programs, and the slow and obvious engine that interprets them.
//
// A program is a list of steps over a hundred variables: ops that read, mutate and overwrite, that throw, complete
// asynchronously, run always, push and wait inside, run on other lanes; retires; heals; waits, with and without a
// limit. Each variable guards a cell that no atomic protects, so that an ordering mistake is a wrong value here and a
// report under ThreadSanitizer.
//
// A further kind of step is drawn by random_step, done by Machine::push (machine.h), and interpreted by
// Interpreter::run.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "windrow/engine/var.h"

namespace windrow::testing {

inline constexpr int variables = 100;

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x7f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 27);
}

enum class Body { plain, async, async_elsewhere, nested, polls, declared, fails, drops_token, on_lane, async_on_lane };

struct Step {
  enum class Kind { op, retire, heal, wait, wait_for } kind = Kind::op;
  Body body = Body::plain;
  int id = 0;
  bool run_always = false;
  int priority = 0;
  int lane = 0;
  std::vector<std::pair<int, AccessKind>> accesses;  // each variable once
};

struct Features {
  bool failures = true;  // throw, drop, heal, run_always, retire
  int lanes = 0;         // ordered lanes to use
  bool waits = true;     // steps that wait
  /// One in so many ops hands something to another thread and waits for it, which costs as much as a hundred others.
  unsigned slow_one_in = 2;
};

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
  if (features.failures && one_in(12)) {
    step.kind = one_in(2) ? Step::Kind::retire : Step::Kind::heal;
    step.accesses = {{static_cast<int>(random() % variables), AccessKind::overwrite}};
    return step;
  }
  if (features.waits && one_in(10 * features.slow_one_in)) {
    step.kind = one_in(2) ? Step::Kind::wait : Step::Kind::wait_for;
    return step;
  }
  constexpr Body quick[] = {Body::plain, Body::plain, Body::plain, Body::async, Body::declared};
  constexpr Body slow[] = {Body::async_elsewhere, Body::nested, Body::polls};
  step.body = one_in(features.slow_one_in) ? slow[random() % std::size(slow)] : quick[random() % std::size(quick)];
  if (features.failures && one_in(20)) step.body = one_in(2) ? Body::fails : Body::drops_token;
  if (features.lanes > 0 && one_in(3)) {
    step.body = one_in(3) ? Body::async_on_lane : Body::on_lane;
    step.lane = static_cast<int>(random() % static_cast<unsigned>(features.lanes));
  }
  return step;
}

/// What a variable guards, and what is recorded of who touched it.
struct Cell {
  std::uint64_t value = 0;
  int last_writer = -1;
};

/// What one step saw: an op for each access the writer before it, a wait whether it was told of poison.
struct Sight {
  bool ran = false;  // of a wait: it has come to its end
  bool poisoned = false;
  std::vector<int> writers;
};

/// What a step does to the cells it was granted.
inline void apply(const Step& step, const std::vector<Cell*>& cells, Sight& sight) {
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
  sight.ran = true;
}

/// The slow, obvious engine: one step after the other.
class Interpreter {
 public:
  struct State {
    Cell cell;
    bool poisoned = false;
    std::uint64_t version = 0;
  };

  /// True if the step meets poison.
  bool run(const Step& step) {
    if (step.kind == Step::Kind::retire) {
      states[static_cast<std::size_t>(step.accesses[0].first)] = {};
      return false;
    }
    std::vector<Cell*> cells;
    bool poisoned = false;
    for (const auto& [v, kind] : step.accesses) {
      State& state = states[static_cast<std::size_t>(v)];
      cells.push_back(&state.cell);
      poisoned |= state.poisoned && kind != AccessKind::overwrite;
    }
    if (step.kind == Step::Kind::wait || step.kind == Step::Kind::wait_for) return poisoned;
    const bool skipped = poisoned && !step.run_always;
    const bool failed = !skipped && (step.body == Body::fails || step.body == Body::drops_token);
    Sight sight;
    if (!skipped && !failed && step.kind == Step::Kind::op) apply(step, cells, sight);
    for (const auto& [v, kind] : step.accesses) {
      State& state = states[static_cast<std::size_t>(v)];
      if (kind == AccessKind::read) continue;
      if (!skipped) ++state.version;
      if (skipped || failed) state.poisoned = true;
      if (!skipped && !failed && kind == AccessKind::overwrite) state.poisoned = false;
    }
    return poisoned;
  }

  std::array<State, variables> states;
};

}  // namespace windrow::testing
