// Many ops add to one value.
#include "windrow/engine/reduction.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support.h"

namespace windrow {
namespace {

using namespace testing;

class ReductionTest : public EngineOnEveryPolicy {};
WINDROW_EVERY_POLICY(ReductionTest);

TEST_P(ReductionTest, ReadersSeeAllThatWasAddedBeforeAndNothingElse) {
  Reduction<long> sum(engine, 0);
  std::vector<long> seen(100);
  long added = 0;
  std::vector<long> expected;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    for (std::size_t k = 0; k <= i % 20; ++k) {
      sum.add([k](long& part) { part += static_cast<long>(k); });
      added += static_cast<long>(k);
    }
    engine.push([&, i] { seen[i] = sum.value(); }, {sum.read()});
    expected.push_back(added);
  }
  engine.wait_all();
  EXPECT_EQ(seen, expected);
}

TEST_P(ReductionTest, OpsMayChangeTheValueInBetween) {
  Reduction<int> sum(engine, 0);
  for (int i = 0; i < 10; ++i) {
    sum.add([](int& part) { part += 3; });
    engine.push([&] { sum.value() *= 2; }, {sum.mutate()});
  }
  engine.wait({sum.read()});
  int expected = 0;
  for (int i = 0; i < 10; ++i) expected = 2 * (expected + 3);
  EXPECT_EQ(sum.value(), expected);
}

TEST_P(ReductionTest, AFailedAddPoisonsTheValueUntilItIsReset) {
  Reduction<int> sum(engine, 0);
  sum.add([](int& part) { part = 1; });
  sum.add([](int&) { throw std::runtime_error("no"); }, {}, {.name = "bad add"});
  expect_error<OpError>([&] { engine.wait({sum.read()}); }, "bad add");
  sum.reset(40);
  sum.add([](int& part) { part += 2; });
  engine.wait({sum.read()});
  EXPECT_EQ(sum.value(), 42);
}

TEST_P(ReductionTest, AddsRunAfterItsEnd) {
  std::atomic<int> ran{0};
  {
    Reduction<int> sum(engine, 0);
    for (int i = 0; i < 20; ++i) sum.add([&](int& part) { part += 1, ++ran; });
  }
  engine.wait_all();
  EXPECT_EQ(ran, 20);
}

TEST(Reductions, HaveTheSameBitsForAnyNumberOfWorkers) {
  const auto sum_with = [](int workers) {
    Engine engine({.policy = Policy::pool, .workers = workers});
    Reduction<double> sum(engine, 0);
    for (int i = 1; i <= 5000; ++i) sum.add([i](double& part) { part += std::sin(i); });
    engine.wait({sum.read()});
    return sum.value();
  };
  const double one = sum_with(1);
  EXPECT_EQ(sum_with(2), one);
  EXPECT_EQ(sum_with(8), one);
}

TEST(Reductions, AddSideBySide) {
  Engine engine({.policy = Policy::pool, .workers = 2});
  Reduction<int> sum(engine, 0);
  Crowd crowd;
  for (int i = 0; i < 2; ++i) sum.add([&](int& part) { crowd.meet(2), ++part; });
  engine.wait({sum.read()});
  EXPECT_EQ(sum.value(), 2);
}

TEST(Reductions, CombineAsTheyAreTold) {
  Engine engine({.policy = Policy::pool, .workers = 2});
  const auto larger = [](int a, int b) { return std::max(a, b); };
  Reduction<int, decltype(larger)> most(engine, 0, larger, {.name = "most", .ways = 3});
  for (const int i : {3, 9, 4, 1, 7}) {
    most.add([i](int& part) { part = std::max(part, i); });
  }
  engine.wait({most.read()});
  EXPECT_EQ(most.value(), 9);
}

TEST(Reductions, SeveralThreadsMayAdd) {
  Engine engine({.policy = Policy::pool, .workers = 2});
  Reduction<int> sum(engine, 0);
  on_threads(4, [&](int) {
    for (int i = 0; i < 500; ++i) sum.add([](int& part) { ++part; });
    engine.wait({sum.read()});
  });
  engine.wait({sum.read()});
  EXPECT_EQ(sum.value(), 2000);
}

}  // namespace
}  // namespace windrow
