// Runs random programs in pieces. Some pieces are pushed; others are captured and launched, once or several times.
#pragma once

#include <span>

#include "machine.h"

namespace windrow::testing {

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

inline Played play(const EngineOptions& options, const Play& how) {
  const std::vector<Step> steps = random_program(how.seed, how.steps, how.features);
  Machine machine(options, how.features.lanes, steps.size());
  const std::vector<std::size_t> order = how.features.graphs ? Player(machine, steps, how.seed).play(how.pushers)
                                                             : push_in_agreed_order(machine, steps, how.pushers);
  return {order.size(), difference_in_order(machine, steps, order)};
}

}  // namespace windrow::testing
