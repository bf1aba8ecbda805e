// Loops inside ops: every piece once, with helpers that never are too many.
#include "windrow/engine/parallel.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "tests/engine/support.h"
#include "tests/sanitized.h"

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

TEST_P(Parallel, WorkersTakeOpsBeforeTheyHelp) {
  // Each op of the crowd runs although a loop could use every worker; the loop ends all the same.
  std::atomic<int> ran{0};
  engine.push([&] { parallel_for(200, 1, [&](std::size_t, std::size_t) { std::this_thread::sleep_for(50us); }); }, {});
  for (int i = 0; i < 500; ++i) engine.push([&] { ++ran; }, {});
  engine.wait_all();
  EXPECT_EQ(ran, 500);
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

TEST_P(ParallelHelp, LeavesForAnOpThatIsReady) {
  Engine engine({.policy = GetParam(), .workers = 2});
  // The loop goes on until the op has run, which only the helper can run.
  std::atomic<int> pieces{0};
  std::atomic<bool> ran{false};
  engine.push(
      [&] {
        parallel_for(1'000'000'000, 1'000, [&](std::size_t begin, std::size_t) {
          if (ran) throw std::runtime_error("done");
          if (++pieces == 100) engine.push([&] { ran = true; }, {});
          static_cast<void>(begin);
        });
      },
      {});
  EXPECT_THROW(engine.wait_all(), OpError);
  EXPECT_TRUE(ran);
}

TEST_P(ParallelHelp, LeavesForAnOpThatItsPusherKeeps) {
  // A thread from outside keeps a few ready ops to itself before it hands them over; here it pushes one, and no more.
  Engine engine({.policy = GetParam(), .workers = 2});
  std::atomic<int> pieces{0};
  std::atomic<bool> ran{false}, give_up{false};
  engine.push(
      [&] {
        parallel_for(1'000'000'000, 1'000, [&](std::size_t, std::size_t) {
          if (ran || give_up) throw std::runtime_error("done");
          ++pieces;
        });
      },
      {});
  EXPECT_TRUE(comes_true([&] { return pieces >= 1000; }));
  engine.push([&] { ran = true; }, {});
  EXPECT_TRUE(comes_true([&] { return ran.load(); }));
  give_up = true;
  EXPECT_THROW(engine.wait_all(), OpError);
}

}  // namespace
}  // namespace windrow::testing
