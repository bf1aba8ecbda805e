// Random programs of which pieces are captured and launched, once or several times, among ops that are just pushed:
// the outcome must be the interpreter's, which runs the steps of each launch one after the other.
#include <algorithm>
#include <cstdio>

#include "machine.h"

namespace windrow::testing {
namespace {

constexpr std::uint64_t first_seed = 20241122;

bool is_wait(const Step& step) { return step.kind == Step::Kind::wait || step.kind == Step::Kind::wait_for; }
bool is_retire(const Step& step) { return step.kind == Step::Kind::retire; }

/// Two launches of a step overlap if it only reads, and a step notes what it has seen in one place.
void give_each_step_a_write(std::vector<Step>& steps, std::mt19937_64& random) {
  for (Step& step : steps) {
    const auto writes = [](const auto& access) { return access.second != AccessKind::read; };
    if (is_wait(step) || std::any_of(step.accesses.begin(), step.accesses.end(), writes)) continue;
    const int v = static_cast<int>(random() % variables);
    std::erase_if(step.accesses, [&](const auto& access) { return access.first == v; });
    step.accesses.emplace_back(v, AccessKind::mutate);
  }
}

/// A graph that was launched before, and what it was captured from.
struct Kept {
  Graph graph;
  std::span<const Step> steps;
  std::size_t retires_before;  ///< of the whole program
};

class Player {
 public:
  Player(Machine& machine, std::uint64_t seed) : machine_(machine), random_(seed) {}

  void play(std::span<const Step> steps) {
    while (!steps.empty()) {
      if (one_in(5)) launch_again();
      const std::span<const Step> piece = steps.first(length_of_piece(steps));
      if (is_wait(piece[0]) || one_in(3)) {
        push(piece);
        interpret(piece);
      } else {
        capture(piece);
      }
      steps = steps.subspan(piece.size());
    }
  }

  Interpreter expected;

 private:
  bool one_in(unsigned n) { return random_() % n == 0; }

  /// Waits stand alone, since they cannot be captured.
  std::size_t length_of_piece(std::span<const Step> steps) {
    if (is_wait(steps[0])) return 1;
    const std::size_t most = std::min<std::size_t>(steps.size(), 1 + random_() % 20);
    const auto end = std::find_if(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(most), is_wait);
    return static_cast<std::size_t>(end - steps.begin());
  }

  void push(std::span<const Step> steps) {
    for (const Step& step : steps) machine_.push(step);
  }

  void interpret(std::span<const Step> steps) {
    for (const Step& step : steps) {
      expected.run(step);
      retires_ += is_retire(step);
    }
  }

  void capture(std::span<const Step> steps) {
    const std::size_t half = random_() % (steps.size() + 1);
    const Graph graph = machine_.engine.capture([&] { push(steps.first(half)); });
    graph.append([&] { push(steps.subspan(half)); });
    const bool retires = std::any_of(steps.begin(), steps.end(), is_retire);
    const std::uint64_t launches = retires ? 1 : 1 + random_() % 3;
    for (std::uint64_t i = 0; i < launches; ++i) {
      graph.launch();
      interpret(steps);
    }
    if (!retires) kept_.push_back({graph, steps, retires_});
    if (kept_.size() > 8) kept_.erase(kept_.begin());
  }

  void launch_again() {
    if (kept_.empty()) return;
    const Kept& kept = kept_[random_() % kept_.size()];
    if (kept.retires_before != retires_) return;  // one of its variables may be gone
    if (one_in(2)) {
      kept.graph.launch();
    } else {
      machine_.engine.capture([&] { kept.graph.launch(); }).launch();
    }
    interpret(kept.steps);
  }

  Machine& machine_;
  std::mt19937_64 random_;
  std::vector<Kept> kept_;
  std::size_t retires_ = 0;
};

class GraphOracle : public EveryPolicy {
 protected:
  static void expect_serial_outcome(std::size_t length, const Features& features) {
    for (std::uint64_t seed = first_seed; seed < first_seed + 4; ++seed) {
      std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
      std::vector<Step> steps = random_program(seed, length, features);
      std::mt19937_64 random(seed);
      give_each_step_a_write(steps, random);
      Machine machine(options(), features.lanes, steps.size());
      Player player(machine, seed);
      player.play(steps);
      ASSERT_EQ(difference(machine, player.expected), "");
    }
  }
};
WINDROW_EVERY_POLICY(GraphOracle);

TEST_P(GraphOracle, TheOutcomeIsThatOfTheSerialOrder) { expect_serial_outcome(800, {.slow_one_in = 40}); }

TEST_P(GraphOracle, TheSameWithoutFailures) {
  expect_serial_outcome(1500, {.failures = false, .waits = false, .slow_one_in = 20});
}

TEST_P(GraphOracle, TheSameWithOrderedLanes) { expect_serial_outcome(500, {.lanes = 3, .slow_one_in = 8}); }

}  // namespace
}  // namespace windrow::testing
