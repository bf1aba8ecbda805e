// Where other systems that batch by themselves once failed: programs small enough to know by heart what they give.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/batching/cells.h"
#include "tests/ops/cases.h"
#include "tests/sanitized.h"
#include "windrow/batching/lazy_task.h"

namespace windrow {
namespace {

using testing::dense;
using testing::expect_close;
using testing::sanitized;

class LazyLessons : public ::testing::TestWithParam<SchedulePolicy> {
 protected:
  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, 1};
  Parameter u = parameters.add("u", 1, 1, Initial::constant(0.5f));
  LazyGraph graph{host, parameters, {.runner = {.schedule = GetParam()}}};

  LazyExpr number(float value) { return graph.input({value}); }
  double gradient() { return dense(parameters, u)[0]; }
};

TEST_P(LazyLessons, OneArgumentTwiceInABatch) {
  std::vector<LazyExpr> losses;
  double expected = 0;
  for (int i = 1; i <= 5; ++i) {
    const LazyExpr x = matmul(number(static_cast<float>(i)), u);
    losses.push_back(x * x + x);
    expected += 2 * 0.5 * i * i + i;
  }
  graph.backward(losses);
  EXPECT_NEAR(losses[2].scalar(), 1.5 * 1.5 + 1.5, 1e-5);
  EXPECT_NEAR(gradient(), expected, 1e-4);
}

/// The first time, a later flush brings a way of computing that the runner does not know.
TEST(LazyStatistics, CountGradientsThroughRunnersThatWereReplaced) {
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const Parameter w = parameters.add("w", 4, 4, Initial::uniform(-1, 1));
  LazyGraph graph(host, parameters, {.recompute_below = 0});
  std::int64_t before = 0;
  std::vector<std::int64_t> flops;
  for (int pass = 0; pass < 2; ++pass) {
    const LazyExpr x = matmul(graph.input({1, 2, 3, 4}), w);
    x.value();
    const LazyExpr loss = row_sum(tanh(matmul(exp(x), w)));
    graph.backward({&loss, 1});
    graph.clear();
    flops.push_back(graph.stats().runner.multiply_flops - before);
    before += flops.back();
  }
  EXPECT_EQ(flops[0], flops[1]);
  EXPECT_GE(flops[0], 5 * 2 * 4 * 4);
}

/// One instance's value is an argument of all others, though it came out of a batch with them.
TEST_P(LazyLessons, AnArgumentOfAllThatCameOutOfABatch) {
  std::vector<LazyExpr> states, losses;
  for (int i = 1; i <= 4; ++i) states.push_back(matmul(number(static_cast<float>(i)), u));
  double expected = 0;
  for (int i = 1; i <= 4; ++i) {
    losses.push_back(states[static_cast<std::size_t>(i) - 1] * states[2]);
    expected += 2 * 0.5 * i * 3;  // d/du of 3 i u^2
  }
  graph.backward(losses);
  for (int i = 1; i <= 4; ++i) EXPECT_NEAR(losses[static_cast<std::size_t>(i) - 1].scalar(), 0.75 * i, 1e-5);
  EXPECT_NEAR(gradient(), expected, 1e-4);
}

TEST_P(LazyLessons, ManyConsumersOfManyKinds) {
  const LazyExpr x = matmul(number(2), u), other = matmul(number(3), u);
  const std::vector<LazyExpr> losses = {square(x), x, 3.0 * x, x * other, matmul(x, u), exp(x), x - other, x + x};
  graph.backward(losses);
  // x = 2 u, other = 3 u, u = 1/2.
  const double of_x = 2 * 1 + 1 + 3 + 1.5 + 0.5 + std::exp(1.0) + 1 + 2, of_other = 1 - 1;
  EXPECT_NEAR(gradient(), 2 * of_x + 3 * of_other + 1, 1e-4);
}

TEST_P(LazyLessons, DepthsAndAritiesMixed) {
  std::vector<LazyExpr> losses;
  double expected = 0;
  for (int depth = 1; depth <= 6; ++depth) {
    LazyExpr x = number(1);
    double value = 1, slope = 0;
    for (int level = 0; level < depth; ++level) {
      const std::vector<LazyExpr> terms(static_cast<std::size_t>(1 + (level + depth) % 4), matmul(x, u));
      x = sum(terms);
      const auto arity = static_cast<double>(terms.size());
      slope = arity * (value + 0.5 * slope);
      value = arity * 0.5 * value;
    }
    losses.push_back(x);
    expected += slope;
  }
  graph.backward(losses);
  EXPECT_NEAR(gradient(), expected, 1e-3 * expected);
}

/// What is asked for half-way is what it is in the end, and changes nothing.
TEST_P(LazyLessons, AValueReadHalfWay) {
  std::vector<float> half_way, all;
  double gradients[2];
  for (const bool reads : {false, true}) {
    std::vector<LazyExpr> states, losses;
    for (int i = 0; i < 6; ++i) {
      LazyExpr x = number(static_cast<float>(i));
      for (int step = 0; step < 4; ++step) {
        x = tanh(matmul(x, u) + number(1));
        if (step == 1) states.push_back(x);
        if (reads && step == 1 && i % 2 == 0) half_way.push_back(x.scalar());
      }
      losses.push_back(x * states.back());
    }
    graph.backward(losses);
    gradients[reads] = gradient();
    for (const LazyExpr& state : states) all.push_back(state.scalar());
    graph.clear();
  }
  for (std::size_t i = 0; i < half_way.size(); ++i) {
    EXPECT_EQ(half_way[i], all[2 * i]);
    EXPECT_EQ(half_way[i], all[6 + 2 * i]);
  }
  EXPECT_NEAR(gradients[true], gradients[false], 1e-5);
}

TEST_P(LazyLessons, AMaskForEachInstance) {
  const std::vector<float> ones(64, 1);
  const auto dropped = [&](int instance) {
    const std::int32_t keys[] = {1, instance, 0};
    return dropout(graph.input(ones), graph.index(keys), 0.5, 7, 0);
  };
  std::vector<std::vector<float>> together;
  std::vector<LazyExpr> masks;
  for (int i = 0; i < 8; ++i) masks.push_back(dropped(i));
  for (const LazyExpr& mask : masks) together.push_back(mask.value());
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(dropped(i).value(), together[static_cast<std::size_t>(i)]) << "alone";
    for (int j = 0; j < i; ++j) EXPECT_NE(together[static_cast<std::size_t>(i)], together[static_cast<std::size_t>(j)]);
  }
}

/// What gradients take is many times what was taken before them, and moves nothing of it.
TEST_P(LazyLessons, MemoryThatGrowsDuringBackward) {
  constexpr Index width = 300;
  const Parameter w = parameters.add("w", width, width, Initial::glorot(width, width));
  const std::vector<float> ones(width, 1);
  std::vector<LazyExpr> states, losses;
  std::vector<std::vector<float>> before;
  for (int i = 0; i < 4; ++i) {
    LazyExpr x = graph.input(ones);
    for (int step = 0; step < 10; ++step) {
      x = tanh(matmul(x, w));
      if (step == 4) before.push_back(x.value());
      if (step == 4) states.push_back(x);
    }
    losses.push_back(row_sum(square(x)));
  }
  graph.backward(losses);
  for (std::size_t i = 0; i < states.size(); ++i) {
    EXPECT_EQ(states[i].value(), before[i]);
    EXPECT_EQ(before[i], before[0]);
  }
  const std::vector<double> all = dense(parameters, w);
  graph.clear();
  // The same at once, without looking.
  losses.clear();
  for (int i = 0; i < 4; ++i) {
    LazyExpr x = graph.input(ones);
    for (int step = 0; step < 10; ++step) x = tanh(matmul(x, w));
    losses.push_back(row_sum(square(x)));
  }
  graph.backward(losses);
  expect_close(dense(parameters, w), all, 1e-3);
}

TEST_P(LazyLessons, NothingAtAll) {
  graph.flush();
  graph.clear();
  graph.clear();
  EXPECT_TRUE(run(graph, std::vector<LazyTask<int>>()).empty());
  EXPECT_THROW(graph.backward({}), MisuseError);
  EXPECT_EQ(graph.stats().flushes, 0);
  const LazyExpr x = number(3);
  graph.backward(std::array{x});  // of no parameter
  EXPECT_EQ(x.scalar(), 3);
  EXPECT_FALSE(parameters.gradient(u).all.has_value());
}

INSTANTIATE_TEST_SUITE_P(All, LazyLessons,
                         ::testing::Values(SchedulePolicy::level, SchedulePolicy::agenda, SchedulePolicy::serial),
                         [](const auto& of) { return std::string(to_string(of.param)); });

/// Neither recursion nor a cost that grows with the square, forward or backward.
TEST(LazyChain, OfAMillionNodes) {
  Engine engine({.workers = 1});
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const Parameter u = parameters.add("u", 1, 1, Initial::constant(1));
  LazyGraph graph(host, parameters);
  constexpr int length = sanitized ? 100'000 : 500'000;
  LazyExpr x = graph.input({0});
  const LazyExpr one = graph.input({1});
  for (int i = 0; i < length; ++i) x = matmul(x, u) + one;
  graph.backward(std::array{x});
  EXPECT_EQ(x.scalar(), length);
  EXPECT_GE(graph.stats().expressions, 2 * length);
  EXPECT_LE(graph.stats().kinds, 8);
}

}  // namespace
}  // namespace windrow
