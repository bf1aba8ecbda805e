// Pieces of a loop act in the scopes of the op that runs the loop, whichever thread runs them.
#include <atomic>
#include <set>
#include <thread>

#include "tests/engine/sim_device.h"
#include "tests/engine/support.h"
#include "windrow/engine/internal/push_refusal.h"
#include "windrow/engine/parallel.h"

namespace windrow::testing {
namespace {

class LoopScope : public ::testing::TestWithParam<Setup> {
 protected:
  LoopScope() : LoopScope(256) {}
  explicit LoopScope(int spares)
      : engine_({.policy = GetParam().policy, .workers = GetParam().workers, .max_spare_threads = spares}) {}

  /// Runs it inside an op, and passes on what it throws.
  template <class F>
  void in_op(F&& f) {
    engine_.push([&] { f(); }, {mutate(var_)}, {.name = "looping"});
    engine_.wait(var_);
  }
  /// A loop whose pieces take so long that idle threads would help.
  template <class F>
  static void loop(F&& piece) {
    parallel_for(32, 1, [&](std::size_t, std::size_t) {
      std::this_thread::sleep_for(500us);
      piece();
    });
  }

  Engine engine_;
  const Var var_ = engine_.new_var("var");
};
WINDROW_EVERY_POLICY(LoopScope);

TEST_P(LoopScope, PiecesPushIntoTheCaptureOfTheirOp) {
  std::atomic<int> ran = 0;
  Graph graph;
  in_op([&] { graph = engine_.capture([&] { loop([&] { engine_.push([&] { ++ran; }, {}); }); }); });
  EXPECT_EQ(graph.size(), 32u);
  EXPECT_EQ(ran, 0);
  graph.launch();
  engine_.wait_all();
  EXPECT_EQ(ran, 32);
}

TEST_P(LoopScope, PiecesPushIntoTheCaptureOfAnotherEngine) {
  Engine other({.policy = GetParam().policy, .workers = GetParam().workers});
  std::size_t captured = 0;
  in_op([&] {
    const Graph graph = other.capture([&] { loop([&] { other.push([] {}, {}); }); });
    captured = graph.size();
  });
  EXPECT_EQ(captured, 32u);
}

TEST_P(LoopScope, PiecesAreRefusedWhatTheirOpIsRefused) {
  std::atomic<int> ran = 0, refused = 0, in_force = 0;
  in_op([&] {
    const PushRefusal refusal(engine_, "expected silence");
    loop([&] {
      in_force += refusal.in_force();
      try {
        engine_.push([&] { ++ran; }, {});
      } catch (const MisuseError&) {
        ++refused;
      }
    });
  });
  engine_.wait_all();
  EXPECT_EQ(refused, 32);
  EXPECT_EQ(in_force, 32);
  EXPECT_EQ(ran, 0);
}

TEST_P(LoopScope, ACaptureInAPieceHoldsTheLoopsInIt) {
  std::atomic<std::size_t> captured = 0;
  std::atomic<int> ran = 0;
  in_op([&] {
    parallel_for(4, 1, [&](std::size_t, std::size_t) {
      const Graph graph = engine_.capture([&] { loop([&] { engine_.push([&] { ++ran; }, {}); }); });
      captured += graph.size();
    });
  });
  engine_.wait_all();
  EXPECT_EQ(captured, 128u);
  EXPECT_EQ(ran, 0);
}

TEST_P(LoopScope, PiecesOfAnOpOnAnOrderedLaneRunInItsSection) {
  const LaneId lane = engine_.add_lane(std::make_shared<SimLane>("device"));
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::thread::id of_op;
  engine_.push(
      [&] {
        of_op = std::this_thread::get_id();
        loop([&] {
          std::lock_guard lock(mutex);
          threads.insert(std::this_thread::get_id());
        });
      },
      {mutate(var_)}, {.name = "issue", .lane = lane});
  engine_.wait_all();
  EXPECT_EQ(threads, std::set{of_op});
}

// ---- an engine that is made and ended in a piece ----

void use_an_engine() {
  Engine own({.policy = Policy::pool, .workers = 1});
  own.push([] { std::this_thread::sleep_for(1ms); }, {});
  own.shutdown();
}

TEST_P(LoopScope, AnEngineThatEndsInAPieceLeavesTheNumberOfRunningOps) {
  Crowd crowd;
  const auto count = [&] { crowd.pass([] { std::this_thread::sleep_for(200us); }); };
  for (int i = 0; i < 3; ++i) {
    engine_.push([] { parallel_for(8, 1, [](std::size_t, std::size_t) { use_an_engine(); }); }, {});
    for (int k = 0; k < 40; ++k) engine_.push(count, {});
  }
  engine_.wait_all();
  EXPECT_LE(crowd.most(), GetParam().policy == Policy::serial ? 1 : GetParam().workers);
}

class LoopScopeWithoutSpares : public LoopScope {
 protected:
  LoopScopeWithoutSpares() : LoopScope(0) {}
};
WINDROW_EVERY_POLICY(LoopScopeWithoutSpares);

TEST_P(LoopScopeWithoutSpares, AnEngineMayEndInAPiece) {
  in_op([] { parallel_for(8, 1, [](std::size_t, std::size_t) { use_an_engine(); }); });
  in_op([] {
    parallel_for(4, 1, [](std::size_t, std::size_t) { parallel_for(2, 1, [](auto, auto) { use_an_engine(); }); });
  });
}

TEST(LoopScopeTrace, AWaitInAPieceIsTakenFromTheTimeOfItsOpOnce) {
  Engine engine({.policy = Policy::pool, .workers = 1});
  engine.trace().start();
  engine.push(
      [] {
        parallel_for(2, 1, [](std::size_t, std::size_t) { use_an_engine(); });
        std::this_thread::sleep_for(20ms);
      },
      {});
  engine.wait_all();
  engine.trace().stop();
  std::chrono::nanoseconds busy{};
  for (const TraceSummary::Track& track : engine.trace().summary().tracks) busy += track.busy;
  EXPECT_GE(busy, 18ms);  // the sleep, which is no wait of the engine
}

}  // namespace
}  // namespace windrow::testing
