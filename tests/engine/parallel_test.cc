// Loops inside ops: every piece once, with helpers that never are too many.
#include "windrow/engine/parallel.h"

#include <set>

#include "sim_device.h"
#include "support.h"
#include "tests/sanitized.h"
#include "windrow/engine/internal/push_refusal.h"

namespace windrow::testing {
namespace {

class Parallel : public EngineOnEveryPolicy {
 protected:
  /// Runs it inside an op.
  template <class F>
  void in_op(F&& f) {
    engine.push([&] { f(); }, {mutate(a)}, {.name = "looping"});
    engine.wait(a);
  }
};
WINDROW_EVERY_POLICY(Parallel);

TEST_P(Parallel, LoopsCallEachPieceOnce) {
  in_op([] {
    for (const std::size_t count : {0, 1, 7, 64, 1000}) {
      for (const std::size_t grain : {0, 1, 3, 64, 2000}) {
        std::vector<std::atomic<int>> calls(count);
        parallel_for(count, grain, [&](std::size_t begin, std::size_t end) {
          EXPECT_EQ(begin % std::max<std::size_t>(grain, 1), 0u);
          EXPECT_LE(end - begin, std::max<std::size_t>(grain, 1));
          for (std::size_t i = begin; i < end; ++i) ++calls[i];
        });
        for (const auto& called : calls) EXPECT_EQ(called, 1);
      }
    }
  });
}

std::atomic<std::size_t> counted{0};
void count_piece(std::size_t begin, std::size_t end) { counted += end - begin; }

TEST_P(Parallel, LoopsTakeFunctionsAndPointersToThem) {
  counted = 0;
  void (*pointer)(std::size_t, std::size_t) = count_piece;
  in_op([&] {
    parallel_for(10, 3, count_piece);
    parallel_for(10, 3, &count_piece);
    parallel_for(10, 3, pointer);
    parallel_for(10, 3, [](auto begin, auto end) { count_piece(begin, end); });
  });
  EXPECT_EQ(counted, 40u);
}

TEST_P(Parallel, ReductionsCombinePiecesInTheirOrder) {
  in_op([] {
    const auto text = [](std::size_t begin, std::size_t end) {
      return std::to_string(begin) + "-" + std::to_string(end) + " ";
    };
    EXPECT_EQ(parallel_reduce(10, 4, std::string(":"), text, std::plus<>()), ":0-4 4-8 8-10 ");
    EXPECT_EQ(parallel_reduce(0, 4, std::string(":"), text, std::plus<>()), ":");
  });
}

TEST_P(Parallel, LoopsMayHoldLoops) {
  in_op([] {
    std::atomic<int> calls{0};
    parallel_for(16, 1, [&](std::size_t, std::size_t) {
      parallel_for(16, 2, [&](std::size_t begin, std::size_t end) { calls += static_cast<int>(end - begin); });
    });
    EXPECT_EQ(calls, 256);
  });
}

TEST_P(Parallel, LoopsPassOnWhatAPieceThrows) {
  const auto loop = [] {
    parallel_for(100, 1, [](std::size_t begin, std::size_t) {
      if (begin == 50) throw std::runtime_error("piece 50");
    });
  };
  for (int i = 0; i < 20; ++i) {
    engine.push(loop, {overwrite(a)}, {.name = "looping"});
    expect_error<OpError>([&] { engine.wait(a); }, "piece 50");
  }
}

TEST_P(Parallel, PiecesMayNotWait) {
  in_op([&] {
    parallel_for(8, 1, [&](std::size_t, std::size_t) { EXPECT_THROW(engine.wait(b), MisuseError); });
    engine.wait(b);
  });
}

TEST_P(Parallel, PiecesMayPush) {
  int value = 0;
  in_op([&] { parallel_for(100, 1, [&](std::size_t, std::size_t) { engine.push([&] { ++value; }, {mutate(b)}); }); });
  engine.wait(b);
  EXPECT_EQ(value, 100);
}

TEST_P(Parallel, NoMoreThreadsRunThanTheEngineHasWorkers) {
  Crowd crowd;
  const auto run = [&] { crowd.pass([] { std::this_thread::sleep_for(100us); }); };
  for (int i = 0; i < 20; ++i) {
    engine.push([&] { parallel_for(16, 1, [&](std::size_t, std::size_t) { run(); }); }, {});
    engine.push([&] { run(); }, {});
  }
  engine.wait_all();
  EXPECT_LE(crowd.most(), GetParam().policy == Policy::serial ? 1 : GetParam().workers);
}

TEST(ParallelOutside, LoopsRunOnTheCallingThread) {
  std::set<std::thread::id> threads;
  parallel_for(100, 3, [&](std::size_t, std::size_t) { threads.insert(std::this_thread::get_id()); });
  EXPECT_EQ(threads, std::set{std::this_thread::get_id()});
}

class ParallelHelp : public EachPolicy {
 protected:
  void SetUp() override {
    if (thread_sanitized) GTEST_SKIP() << "loops run alone under ThreadSanitizer";
  }
};
INSTANTIATE_TEST_SUITE_P(PoliciesWhoseThreadsHelp, ParallelHelp, ::testing::Values(Policy::pool, Policy::per_device),
                         [](const auto& about) { return std::string(to_string(about.param)); });

TEST_P(ParallelHelp, ComesFromAWorkerWithoutOps) {
  Engine engine({.policy = GetParam(), .workers = 2});
  // Two pieces that wait for each other end only where two threads run them.
  Crowd crowd;
  engine.push([&] { parallel_for(2, 1, [&](std::size_t, std::size_t) { crowd.meet(2); }); }, {});
  engine.wait_all();
}

/// The loop goes on until the op has run, which only the helper can run. A thread from outside keeps a few ready ops to
/// itself before it hands them over; here it pushes one, and no more.
TEST_P(ParallelHelp, LeavesForAnOpThatAPieceOrAnotherThreadPushes) {
  for (const bool by_a_piece : {true, false}) {
    Engine engine({.policy = GetParam(), .workers = 2});
    std::atomic<int> pieces{0};
    std::atomic<bool> ran{false}, give_up{false};
    const auto push = [&] { engine.push([&] { ran = true; }, {}); };
    const auto piece = [&](std::size_t, std::size_t) {
      if (ran || give_up) throw std::runtime_error("done");
      if (++pieces == 100 && by_a_piece) push();
    };
    engine.push([&] { parallel_for(1'000'000'000, 1'000, piece); }, {});
    if (!by_a_piece) {
      EXPECT_TRUE(comes_true([&] { return pieces >= 1000; }));
      push();
    }
    EXPECT_TRUE(comes_true([&] { return ran.load(); }));
    give_up = true;
    EXPECT_THROW(engine.wait_all(), OpError);
  }
}

// Pieces of a loop act in the scopes of the op that runs the loop, whichever thread runs them.
class LoopScope : public Parallel {
 protected:
  /// A loop whose pieces take so long that idle threads would help.
  template <class F>
  static void loop(F&& piece) {
    parallel_for(32, 1, [&](std::size_t, std::size_t) {
      std::this_thread::sleep_for(500us);
      piece();
    });
  }
};
WINDROW_EVERY_POLICY(LoopScope);

TEST_P(LoopScope, PiecesPushIntoTheCaptureOfTheirOpAlsoOfAnotherEngine) {
  Engine other(options());
  for (Engine* const of : {&engine, &other}) {
    std::atomic<int> ran = 0;
    Graph graph;
    in_op([&] { graph = of->capture([&] { loop([&] { of->push([&] { ++ran; }, {}); }); }); });
    EXPECT_EQ(graph.size(), 32u);
    EXPECT_EQ(ran, 0);
    graph.launch();
    of->wait_all();
    EXPECT_EQ(ran, 32);
  }
}

TEST_P(LoopScope, PiecesAreRefusedWhatTheirOpIsRefused) {
  std::atomic<int> ran = 0, refused = 0, in_force = 0;
  in_op([&] {
    const PushRefusal refusal(engine, "expected silence");
    loop([&] {
      in_force += refusal.in_force();
      try {
        engine.push([&] { ++ran; }, {});
      } catch (const MisuseError&) {
        ++refused;
      }
    });
  });
  engine.wait_all();
  EXPECT_EQ(refused, 32);
  EXPECT_EQ(in_force, 32);
  EXPECT_EQ(ran, 0);
}

TEST_P(LoopScope, ACaptureInAPieceHoldsTheLoopsInIt) {
  std::atomic<std::size_t> captured = 0;
  std::atomic<int> ran = 0;
  in_op([&] {
    parallel_for(4, 1, [&](std::size_t, std::size_t) {
      const Graph graph = engine.capture([&] { loop([&] { engine.push([&] { ++ran; }, {}); }); });
      captured += graph.size();
    });
  });
  engine.wait_all();
  EXPECT_EQ(captured, 128u);
  EXPECT_EQ(ran, 0);
}

TEST_P(LoopScope, PiecesOfAnOpOnAnOrderedLaneRunInItsSection) {
  const LaneId lane = engine.add_lane(std::make_shared<SimLane>("device"));
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::thread::id of_op;
  engine.push(
      [&] {
        of_op = std::this_thread::get_id();
        loop([&] {
          std::lock_guard lock(mutex);
          threads.insert(std::this_thread::get_id());
        });
      },
      {mutate(a)}, {.name = "issue", .lane = lane});
  engine.wait_all();
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
    engine.push([] { parallel_for(8, 1, [](std::size_t, std::size_t) { use_an_engine(); }); }, {});
    for (int k = 0; k < 40; ++k) engine.push(count, {});
  }
  engine.wait_all();
  EXPECT_LE(crowd.most(), GetParam().policy == Policy::serial ? 1 : GetParam().workers);
}

TEST_P(LoopScope, AnEngineMayEndInAPieceWithoutSpareThreads) {
  Engine without(options({.max_spare_threads = 0}));
  without.push([] { parallel_for(8, 1, [](auto, auto) { use_an_engine(); }); }, {});
  without.wait_all();
  without.push([] { parallel_for(4, 1, [](auto, auto) { parallel_for(2, 1, [](auto, auto) { use_an_engine(); }); }); },
               {});
  without.wait_all();
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
