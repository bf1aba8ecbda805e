// Flushes and gradients of lazy expressions, in small programs; and what expressions are cut into: as few ways of
// computing, and batches, as the program has, whatever the lengths and the numbers in it.
#include "windrow/batching/lazy.h"

#include <pthread.h>

#include "tests/batching/cells.h"
#include "windrow/batching/internal/lazy_weight.h"
#include "windrow/batching/lazy_task.h"

namespace windrow::testing {
namespace {

class LazyFlushes : public ::testing::Test, protected OnHost {
 protected:
  LazyGraph graph{host, parameters};
};

/// Leaves and inner vertices are two kinds, as with vertex functions, wherever the program looks up its words.
TEST_F(LazyFlushes, PutTogetherWhatIsWrittenTogether) {
  const Parameter words = parameters.add("words", 10, 3, Initial::uniform(-1, 1)),
                  w = parameters.add("w", 6, 3, Initial::glorot(6, 3)), b = parameters.add("b", 1, 3, Initial::zeros());
  std::vector<LazyExpr> losses;
  const std::function<LazyExpr(int)> tree = [&](int depth) -> LazyExpr {
    if (depth == 0) return tanh(embedding(words, graph.index(3)) + b);
    const LazyExpr left = tree(depth - 1), right = tree(depth > 3 ? depth - 2 : depth - 1);
    const LazyExpr both = tanh(affine(concat(left, right), w, b));
    const LazyExpr own = both * embedding(words, graph.index(depth));  // cuts the run, and is put together again
    losses.push_back(row_sum(square(own)));
    return own;
  };
  for (int i = 0; i < 4; ++i) tree(6);
  graph.backward(losses);
  EXPECT_EQ(graph.stats().kinds, 2);
  EXPECT_EQ(graph.stats().flushes, 1);
  EXPECT_LT(graph.stats().vertices, graph.stats().expressions / 3);
}

TEST_F(LazyFlushes, NoteNoLossOfABackwardThatIsRefused) {
  const Parameter u = parameters.add("u", 1, 1, Initial::constant(1));
  const LazyExpr loss = matmul(graph.input({2}), u), wide = graph.input({1, 2});
  EXPECT_THROW(graph.backward(std::array{loss, wide}), MisuseError);
  graph.backward(std::array{loss});
  EXPECT_EQ(dense(parameters, u)[0], 2);
}

TEST_F(LazyFlushes, ComputeWhatNoHandleNames) {
  graph.input({1, 2});
  graph.flush();
  const LazyExpr x = row_sum(graph.input({1, 2}));
  graph.backward(std::array{x});
  EXPECT_EQ(x.scalar(), 3);
  EXPECT_EQ(graph.stats().flushes, 2);
}

TEST_F(LazyFlushes, HaveParametersOfOneRowAsExpressions) {
  const Parameter first = parameters.add("first", 1, 2, Initial::constant(3));
  const Parameter table = parameters.add("table", 4, 2, Initial::constant(1));
  const LazyExpr x = graph.parameter(first), y = x * x + graph.input({1, 2});
  const LazyExpr part = graph.parameter(square(slice(LazyWeight(first), 1, 2)));
  graph.backward(std::array{row_sum(y), row_sum(x), part});
  EXPECT_EQ(y.value(), (std::vector<float>{10, 11}));
  EXPECT_EQ(part.value(), std::vector<float>{9});
  EXPECT_EQ(dense(parameters, first), (std::vector<double>{7, 13}));
  EXPECT_EQ(error_of<MisuseError>([&] { graph.parameter(table); }),
            "a parameter of 4 rows as an expression; expected one of 1 row");
}

TEST_F(LazyFlushes, HaveGradientsOfInputsThatAreToBeKept) {
  const Parameter w = parameters.add("w", 2, 1, Initial::constant(2));
  for (const bool flushed : {false, true}) {
    const LazyExpr x = graph.input({1, 2}), other = graph.input({5, 6}), unused = graph.input({7});
    graph.keep_gradient(x);
    graph.keep_gradient(unused);
    const LazyExpr y = square(x);
    if (flushed) graph.flush();
    graph.backward(std::array{matmul(y, w), row_sum(x * other), 3 * row_sum(x)});
    EXPECT_EQ(graph.gradient(x), (std::vector<float>{2 * 2 * 1 + 5 + 3, 2 * 2 * 2 + 6 + 3}));
    EXPECT_EQ(graph.gradient(unused), std::vector<float>{0});
    EXPECT_EQ(error_of<MisuseError>([&] { graph.gradient(other); }),
              "gradient: an expression that keep_gradient() does not name; expected one");
    EXPECT_EQ(error_of<MisuseError>([&] { graph.keep_gradient(other); }),
              "keep_gradient: called after backward(); expected it before");
    graph.clear();
  }
  const LazyExpr x = graph.input({1}), y = square(x);
  EXPECT_EQ(error_of<MisuseError>([&] { graph.keep_gradient(y); }),
            "keep_gradient: an expression that is not an input; expected an input");
  graph.flush();
  EXPECT_EQ(error_of<MisuseError>([&] { graph.keep_gradient(x); }),
            "keep_gradient: an input that was computed; expected the call before its flush");
  EXPECT_EQ(error_of<MisuseError>([&] { graph.gradient(x); }), "gradient: called before backward(); expected it after");
}

/// Behind the flush that throws it is learned which vertices are put together, so that they get other numbers.
TEST_F(LazyFlushes, KeepValuesBehindOneThatThrew) {
  const Parameter words = parameters.add("words", 1, 1, Initial::constant(1));
  std::vector<LazyExpr> items;
  const auto add = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const LazyExpr twice = 2.0 * graph.input({static_cast<float>(items.size())});
      items.push_back(twice * embedding(words, graph.index(0)));
    }
  };
  // The first flush fails, which is told as soon as it must be waited for.
  engine.push([] { throw Error("no words"); }, {mutate(parameters.value(words).var())});
  for (int time = 0; time < 2; ++time) {
    add(3);
    graph.flush();
    items.clear();
    engine.heal(parameters.value(words).var());
  }
  add(3);
  EXPECT_THROW(graph.flush(), OpError);
  add(1);
  for (std::size_t i = 0; i < items.size(); ++i) EXPECT_EQ(items[i].scalar(), 2 * static_cast<float>(i));
}

/// The first time, a later flush brings a way of computing that the runner does not know.
TEST_F(LazyFlushes, CountGradientsThroughRunnersThatWereReplaced) {
  const Parameter w = parameters.add("w", 4, 4, Initial::uniform(-1, 1));
  LazyGraph keeps(host, parameters, {.recompute_below = 0});
  std::int64_t before = 0;
  std::vector<std::int64_t> flops;
  for (int pass = 0; pass < 2; ++pass) {
    const LazyExpr x = matmul(keeps.input({1, 2, 3, 4}), w);
    x.value();
    const LazyExpr loss = row_sum(tanh(matmul(exp(x), w)));
    keeps.backward({&loss, 1});
    keeps.clear();
    flops.push_back(keeps.stats().runner.multiply_flops - before);
    before += flops.back();
  }
  EXPECT_EQ(flops[0], flops[1]);
  EXPECT_GE(flops[0], 5 * 2 * 4 * 4);
}

TEST_F(LazyFlushes, MayBeOfNothing) {
  const Parameter u = parameters.add("u", 1, 1, Initial::constant(1));
  graph.flush();
  graph.clear();
  graph.clear();
  EXPECT_TRUE(run(graph, std::vector<LazyTask<int>>()).empty());
  EXPECT_THROW(graph.backward({}), MisuseError);
  EXPECT_EQ(graph.stats().flushes, 0);
  const LazyExpr x = graph.input({3});
  graph.backward(std::array{x});  // of no parameter
  EXPECT_EQ(x.scalar(), 3);
  EXPECT_FALSE(parameters.gradient(u).all.has_value());
}

/// Neither recursion nor a cost that grows with the square, forward or backward.
TEST_F(LazyFlushes, ComputeAMillionExpressionsInARow) {
  const Parameter u = parameters.add("u", 1, 1, Initial::constant(1));
  for (const bool flushed : {true, false}) {  // what the chain begins with
    const int length = flushed ? 20'000 : sanitized ? 100'000 : 500'000;
    LazyExpr x = graph.input({0});
    const LazyExpr one = graph.input({1});
    if (flushed) graph.flush();
    for (int i = 0; i < length; ++i) x = matmul(x, u) + one;
    graph.backward(std::array{x});
    EXPECT_EQ(x.scalar(), length);
    EXPECT_GE(graph.stats().expressions, 2 * length);
    EXPECT_LE(graph.stats().kinds, 8);
    graph.clear();
  }
}

TEST_F(LazyFlushes, AreNotForgottenWhileExpressionsAreRecorded) {
  const LazyExpr recorded = graph.zeros(2);
  EXPECT_EQ(error_of<MisuseError>([&] { graph.forget(); }),
            "forget() while expressions are recorded; expected it after clear()");
  EXPECT_EQ(recorded.value(), std::vector<float>(2, 0));
}

TEST_F(LazyFlushes, AddUpManyTermsAndJoinManyParts) {
  std::vector<LazyExpr> terms;
  for (int i = 0; i < 1000; ++i) terms.push_back(graph.input({static_cast<float>(i)}));
  EXPECT_EQ(sum(terms).scalar(), 999 * 500);
  EXPECT_NEAR(mean(terms).scalar(), 499.5f, 1e-3);
  const std::vector<LazyOperand> parts(terms.begin(), terms.end());
  const std::vector<float> joined = concat(parts).value();
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(joined[static_cast<std::size_t>(i)], static_cast<float>(i));
}

/// Runs it on a thread with a stack of so many bytes.
void on_small_stack(std::size_t bytes, std::function<void()> body) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  pthread_t thread{};
  const auto run = [](void* of) -> void* {
    (*static_cast<std::function<void()>*>(of))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &body), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(LazyDepth, OfWeightsOfTheMostOperationsTakesLittleStack) {
  if (sanitized) GTEST_SKIP() << "frames are larger under sanitizers";
  OnHost s;
  const Parameter w = s.parameters.add("w", 1, 1, Initial::constant(0.5F));
  float chain = 0, tree = 0;
  on_small_stack(std::size_t{300} << 10, [&] {
    LazyGraph graph(s.host, s.parameters);
    LazyWeight deep = w, wide = w;
    for (int i = 0; i < LazyWeight::most_operations; ++i) deep = tanh(deep);
    for (int i = 0; i < 8; ++i) wide = wide + wide;  // 255 operations
    chain = (graph.zeros(1) + deep).value()[0];
    tree = (graph.zeros(1) + wide).value()[0];
  });
  float expected = 0.5F;
  for (int i = 0; i < LazyWeight::most_operations; ++i) expected = std::tanh(expected);
  EXPECT_NEAR(chain, expected, 1e-4);
  EXPECT_EQ(tree, 128);
}

struct WordGraph : OnHost {
  static constexpr Index h = 3;
  Parameter words = parameters.add("words", 5, h, Initial::uniform(-1, 1));
  Parameter u = parameters.add("u", h, h, Initial::uniform(-1, 1));
  Parameter b = parameters.add("b", 1, h, Initial::uniform(-1, 1));
  LazyGraph graph{host, parameters};

  LazyExpr word(int number) { return tanh(embedding(words, graph.index(number % 5)) + b); }
};

enum class Flush { between, never };
/// Losses of sequences of 1 to 12 words, which may be computed before.
std::vector<LazyExpr> sequences(WordGraph& m, Flush flush) {
  std::vector<std::vector<LazyExpr>> inputs;
  for (int length = 1; length <= 12; ++length) {
    auto& x = inputs.emplace_back();
    for (int step = 0; step < length; ++step) x.push_back(m.word(length + step));
  }
  if (flush == Flush::between) m.graph.flush();
  std::vector<LazyExpr> losses;
  for (const auto& x : inputs) {
    LazyExpr state = x[0];
    for (std::size_t step = 1; step < x.size(); ++step) state = tanh(matmul(state, m.u) + x[step]);
    losses.push_back(row_sum(square(state)));
  }
  return losses;
}

/// Each length would be a way of computing of its own if a chain were a run.
TEST(LazyRuns, AreOfOneStepWhetherItsInputsAreComputedOrNot) {
  WordGraph at_once, apart;
  at_once.graph.backward(sequences(at_once, Flush::never));
  apart.graph.backward(sequences(apart, Flush::between));
  EXPECT_LE(at_once.graph.stats().kinds, 6);
  EXPECT_LE(apart.graph.stats().kinds, 7);
  EXPECT_LT(at_once.graph.stats().runner.batches, 120);
  EXPECT_LT(apart.graph.stats().runner.batches, 120);
  const auto expected = at_once.gradients(), found = apart.gradients();
  for (std::size_t p = 0; p < expected.size(); ++p) expect_close(found[p], expected[p], 1e-5);
}

/// The same of a cell without inputs, which nothing else would cut.
TEST(LazyRuns, AreOfOneStepWhereStepsHaveNoInputs) {
  WordGraph m;
  std::vector<LazyExpr> losses;
  for (int length = 1; length <= 30; ++length) {
    LazyExpr state = m.word(length);
    for (int step = 0; step < length; ++step) state = tanh(affine(state, m.u, m.b));
    losses.push_back(row_sum(square(state)));
  }
  m.graph.backward(losses);
  EXPECT_LE(m.graph.stats().kinds, 10);
  EXPECT_LT(m.graph.stats().runner.batches, 300);
}

/// Factors, and seeds of dropout, are inputs of their operations. LazyPrograms show the values.
TEST(LazyRuns, AreOneKindWhateverTheyScaleOrDropBy) {
  WordGraph m;
  const std::vector<float> ones(40, 1);
  std::int64_t kinds = 0;
  for (int first : {0, 20, 40}) {
    std::vector<LazyExpr> all;
    for (int i = first; i < first + 20; ++i) {
      all.push_back(row_sum(square(0.37 * i * m.word(i) + (1.0 / (1 + i)) * m.word(i + 1))));
    }
    for (int i = first; i < first + 20; ++i) {
      const std::int32_t keys[] = {first, i, 0};
      all.push_back(dropout(m.graph.input(ones), m.graph.index(keys), 0.5, std::uint64_t{1} << 40 | i % 2, 3));
    }
    m.graph.flush();
    if (first == 0) kinds = m.graph.stats().kinds;
    m.graph.clear();
  }
  EXPECT_EQ(m.graph.stats().kinds, kinds);
}

TEST(LazyRuns, KeepTheSignOfAZeroBesideTheOther) {
  OnHost s;
  for (const bool negative_first : {false, true}) {
    LazyGraph graph(s.host, s.parameters);
    std::vector<double> numbers = {0.0, -0.0};
    if (negative_first) std::ranges::reverse(numbers);
    std::vector<LazyExpr> quotients, shifted;
    for (const double number : numbers) {
      quotients.push_back(number / graph.input({2}));
      shifted.push_back(scale_shift(graph.input({2}), number, number));
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_EQ(std::signbit(quotients[i].scalar()), std::signbit(numbers[i])) << i;
      EXPECT_EQ(std::signbit(shifted[i].scalar()), std::signbit(numbers[i])) << i;
    }
  }
}

TEST(LazyRuns, AreOneKindIfTheyHaveTheSameNumberThatIsNone) {
  OnHost s;
  const Parameter w = s.parameters.add("w", 1, 2, Initial::uniform(-1, 1));
  LazyGraph graph(s.host, s.parameters);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::int64_t kinds = 0;
  for (int repetition = 0; repetition < 20; ++repetition) {
    for (int i = 0; i < 3; ++i) {
      // The last factor is a function of a parameter, which is known by its number.
      const LazyExpr y = (graph.input({1, 2}) + nan) * scale_shift(LazyWeight(w), 1, nan);
      graph.flush();
      EXPECT_TRUE(std::isnan(y.value()[0]));
    }
    graph.clear();
    if (repetition == 0) kinds = graph.stats().kinds;
  }
  EXPECT_EQ(graph.stats().kinds, kinds);
}

/// A program whose structure changes for ever, beside a part that stays.
TEST(LazyRuns, ForgetWhatIsNotUsedForLong) {
  WordGraph m;
  std::int64_t most = 0, flushes = 0;
  for (int width = 1; width <= 400; ++width) {
    const std::vector<float> ones(static_cast<std::size_t>(width), 1);
    const LazyExpr x = row_sum(2.0 * m.graph.input(ones)), loss = row_sum(square(m.word(width))) * x;
    m.graph.backward(std::array{loss});
    EXPECT_EQ(x.scalar(), 2 * static_cast<float>(width));
    most = std::max(most, m.graph.stats().kinds);
    EXPECT_EQ(m.graph.stats().flushes, ++flushes);
    EXPECT_GE(m.graph.stats().runner.minibatches, flushes);
    m.graph.clear();
  }
  EXPECT_GT(most, 32);
  EXPECT_LT(most, 300);
}

/// A sum is one operation, of as many terms as it has.
TEST(LazyRuns, AddUpListsAtOnce) {
  WordGraph m;
  std::vector<LazyExpr> words;
  for (int i = 0; i < 13; ++i) words.push_back(m.word(i));
  m.graph.flush();
  const std::int64_t vertices = m.graph.stats().vertices;
  std::vector<LazyExpr> sums;
  for (std::size_t begin = 0; begin < 6; ++begin) sums.push_back(square(sum(std::span(words).subspan(begin, 7))));
  m.graph.flush();
  EXPECT_EQ(m.graph.stats().vertices - vertices, 6);
}

TEST(LazyRuns, TakeTogetherWhatIsDoneTwiceWithOneValue) {
  WordGraph m;
  std::vector<LazyExpr> seen, losses;
  for (int i = 0; i < 3; ++i) seen.push_back(m.word(i));
  m.graph.flush();
  const std::int64_t vertices = m.graph.stats().vertices;
  for (const LazyExpr& x : seen) losses.push_back(pick(x, m.graph.index(0)) - pick(x, m.graph.index(2)));
  m.graph.flush();
  EXPECT_EQ(m.graph.stats().vertices - vertices, 3);
}

}  // namespace
}  // namespace windrow::testing
