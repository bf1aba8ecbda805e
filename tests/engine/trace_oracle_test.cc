// Random programs: their traces hold each op once, and the arrows that one op after the other would give.

#include "machine.h"
#include "read_trace.h"
#include "windrow/engine/trace.h"

namespace windrow::testing {
namespace {

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
