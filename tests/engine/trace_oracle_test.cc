// Random programs: their traces hold each op once, and the arrows that one op after the other would give.
#include <random>
#include <thread>

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

  std::set<std::pair<std::string, std::string>> arrows;

 private:
  struct State {
    std::string writer;
    std::vector<std::string> readers;
  };
  std::map<int, State> states_;
};

/// Pushes ops of all kinds over a few variables; knows what the trace must show.
class RandomTraced {
 public:
  RandomTraced(Engine& engine, unsigned seed) : engine_(engine), random_(seed) {
    for (int v = 0; v < 8; ++v) vars_.push_back(engine.new_var("v" + std::to_string(v)));
  }
  void run(int ops) {
    for (int i = 0; i < ops; ++i) push("op" + std::to_string(i));
    try {
      engine_.wait_all();
    } catch (const OpError&) {
    }
    for (std::thread& thread : callers_) thread.join();
  }
  /// The same by graphs of some ops each.
  void run_captured(int ops) {
    may_wait_ = false;
    for (int i = 0; i < ops;) {
      const int end = std::min(ops, i + 1 + static_cast<int>(random_() % 20));
      engine_
          .capture([&] {
            for (; i < end; ++i) push("op" + std::to_string(i));
          })
          .launch();
    }
    run(0);
  }

  ArrowOracle oracle;
  std::set<std::string> names;

 private:
  void push(const std::string& name) {
    const auto accesses = draw();
    std::vector<Access> list;
    for (const auto& [v, kind] : accesses) list.push_back({vars_[static_cast<std::size_t>(v)], kind});
    names.insert(name);
    const PushOptions how{.name = name};
    switch (random_() % 10) {
      case 0:
        engine_.push([] { throw std::runtime_error("as planned"); }, list, how);
        break;
      case 1:
        engine_.push_async([](OnComplete done) { done(); }, list, how);
        break;
      case 2:
        engine_.push_async([this](OnComplete done) { later(std::move(done)); }, list, how);
        break;
      case 3:
        engine_.push(engine_.declare([] {}, list, how));
        break;
      case 4:
        return retire(name, static_cast<int>(random_() % vars_.size()));
      case 5:
        if (may_wait_) wait(static_cast<std::size_t>(random_() % vars_.size()));
        [[fallthrough]];
      default:
        engine_.push([] {}, list, how);
    }
    oracle.push(name, accesses);
  }

  std::vector<std::pair<int, AccessKind>> draw() {
    std::map<int, AccessKind> chosen;
    constexpr AccessKind kinds[] = {AccessKind::read, AccessKind::read, AccessKind::mutate, AccessKind::overwrite};
    for (auto i = random_() % 4; i > 0; --i) chosen[static_cast<int>(random_() % vars_.size())] = kinds[random_() % 4];
    return {chosen.begin(), chosen.end()};
  }

  void retire(const std::string& name, int v) {
    Var& var = vars_[static_cast<std::size_t>(v)];
    engine_.retire(var, nullptr, {.name = name});
    var = engine_.new_var("again");
    oracle.retire(name, v);
  }

  void wait(std::size_t v) {
    try {
      engine_.wait({random_() % 2 == 0 ? read(vars_[v]) : mutate(vars_[v])});
    } catch (const OpError&) {
    }
  }

  void later(OnComplete done) {
    std::lock_guard lock(mutex_);
    callers_.emplace_back([d = std::make_shared<OnComplete>(std::move(done))] { (*d)(); });
  }

  Engine& engine_;
  std::mt19937 random_;
  bool may_wait_ = true;
  std::vector<Var> vars_;
  std::mutex mutex_;
  std::vector<std::thread> callers_;
};

void expect_each_op_and_its_arrows(const EngineOptions& options, void (RandomTraced::*run)(int)) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Engine engine(options);
    engine.trace().start({.all_arrows = true});
    RandomTraced program(engine, seed);
    (program.*run)(200);
    engine.trace().stop();
    ReadTrace trace = read_trace(engine);
    // A graph that ends retires the variables that were its own.
    const auto is_end = [](const std::string& name) { return name == "retire"; };
    std::erase_if(trace.ops, [&](const auto& op) { return is_end(op.name); });
    std::erase_if(trace.arrows, [&](const auto& arrow) { return is_end(arrow.second); });
    std::set<std::string> names;
    for (const auto& op : trace.ops) names.insert(op.name);
    EXPECT_EQ(names, program.names);
    EXPECT_EQ(trace.ops.size(), program.names.size());
    EXPECT_EQ(trace.arrows, program.oracle.arrows);
  }
}

TEST_P(TraceOracle, HoldsEachOpOnceWithAnArrowForEachDirectDependencyAndNoOther) {
  expect_each_op_and_its_arrows(options(), &RandomTraced::run);
}

TEST_P(TraceOracle, HoldsTheOpsOfGraphsOneByOneAndTheirArrows) {
  expect_each_op_and_its_arrows(options(), &RandomTraced::run_captured);
}

}  // namespace
}  // namespace windrow::testing
