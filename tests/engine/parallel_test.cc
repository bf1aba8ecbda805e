// Loops inside ops: every piece once, with helpers that never are too many.
#include "windrow/engine/parallel.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <set>
#include <thread>

#include "tests/engine/support.h"
#include "tests/seed.h"

namespace windrow::testing {
namespace {

class Parallel : public ::testing::TestWithParam<Setup> {
 protected:
  Engine engine_{{.policy = GetParam().policy, .workers = GetParam().workers}};

  /// Runs it inside an op.
  template <class F>
  void in_op(F&& f) {
    const Var var = engine_.new_var("var");
    engine_.push([&] { f(); }, {mutate(var)}, {.name = "looping"});
    engine_.wait(var);
  }
};

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
  const Var var = engine_.new_var("var");
  for (int i = 0; i < 20; ++i) {
    engine_.push(
        [] {
          parallel_for(100, 1, [](std::size_t begin, std::size_t) {
            if (begin == 50) throw std::runtime_error("piece 50");
          });
        },
        {overwrite(var)}, {.name = "looping"});
    try {
      engine_.wait(var);
      FAIL() << "expected OpError";
    } catch (const OpError& error) {
      EXPECT_NE(std::string(error.what()).find("piece 50"), std::string::npos) << error.what();
    }
  }
}

TEST_P(Parallel, PiecesMayNotWait) {
  const Var other = engine_.new_var("other");
  in_op([&] {
    parallel_for(8, 1, [&](std::size_t, std::size_t) { EXPECT_THROW(engine_.wait(other), MisuseError); });
    engine_.wait(other);
  });
}

TEST_P(Parallel, PiecesMayPush) {
  const Var sum = engine_.new_var("sum");
  int value = 0;
  in_op(
      [&] { parallel_for(100, 1, [&](std::size_t, std::size_t) { engine_.push([&] { ++value; }, {mutate(sum)}); }); });
  engine_.wait(sum);
  EXPECT_EQ(value, 100);
}

TEST_P(Parallel, NoMoreThreadsRunThanTheEngineHasWorkers) {
  std::atomic<int> running{0}, most{0};
  const auto run = [&] {
    const int now = ++running;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::sleep_for(100us);
    --running;
  };
  for (int i = 0; i < 20; ++i) {
    engine_.push([&] { parallel_for(16, 1, [&](std::size_t, std::size_t) { run(); }); }, {});
    engine_.push([&] { run(); }, {});
  }
  engine_.wait_all();
  EXPECT_LE(most, GetParam().policy == Policy::serial ? 1 : GetParam().workers);
}

TEST_P(Parallel, WorkersTakeOpsBeforeTheyHelp) {
  // Each op of the crowd runs although a loop could use every worker; the loop ends all the same.
  std::atomic<int> ran{0};
  engine_.push([&] { parallel_for(200, 1, [&](std::size_t, std::size_t) { std::this_thread::sleep_for(50us); }); }, {});
  for (int i = 0; i < 500; ++i) engine_.push([&] { ++ran; }, {});
  engine_.wait_all();
  EXPECT_EQ(ran, 500);
}

INSTANTIATE_TEST_SUITE_P(EverySetup, Parallel, ::testing::ValuesIn(every_setup), setup_name);

TEST(ParallelOutside, LoopsRunOnTheCallingThread) {
  std::set<std::thread::id> threads;
  parallel_for(100, 3, [&](std::size_t, std::size_t) { threads.insert(std::this_thread::get_id()); });
  EXPECT_EQ(threads, std::set{std::this_thread::get_id()});
}

class ParallelHelp : public ::testing::TestWithParam<Policy> {};
INSTANTIATE_TEST_SUITE_P(PoliciesWhoseThreadsHelp, ParallelHelp, ::testing::Values(Policy::pool, Policy::per_device),
                         [](const auto& about) { return std::string(to_string(about.param)); });

TEST_P(ParallelHelp, ComesFromAWorkerWithoutOps) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "loops run alone under ThreadSanitizer";
#endif
  Engine engine({.policy = GetParam(), .workers = 2});
  // Two pieces that wait for each other end only where two threads run them.
  std::atomic<int> begun{0};
  std::atomic<bool> met{false};
  engine.push(
      [&] {
        parallel_for(2, 1, [&](std::size_t, std::size_t) {
          ++begun;
          const auto until = std::chrono::steady_clock::now() + patience;
          while (begun < 2 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
          met = begun == 2;
        });
      },
      {});
  engine.wait_all();
  EXPECT_TRUE(met);
}

TEST_P(ParallelHelp, LeavesForAnOpThatIsReady) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "loops run alone under ThreadSanitizer";
#endif
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
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "loops run alone under ThreadSanitizer";
#endif
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
  const auto until = std::chrono::steady_clock::now() + patience;
  while (pieces < 1000 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  engine.push([&] { ran = true; }, {});
  while (!ran && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_TRUE(ran);
  give_up = true;
  EXPECT_THROW(engine.wait_all(), OpError);
}

}  // namespace
}  // namespace windrow::testing
