// What lazy expressions are cut into: as few ways of computing, and batches, as the program has, whatever the lengths
// and the numbers in it.
#include "tests/batching/cells.h"
#include "windrow/batching/internal/lazy_weight.h"

namespace windrow::testing {
namespace {

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

/// Factors are inputs of their operations.
TEST(LazyRuns, AreOneKindWhateverTheyScaleBy) {
  WordGraph m;
  const auto losses = [&](int first) {
    std::vector<LazyExpr> all;
    for (int i = first; i < first + 20; ++i)
      all.push_back(row_sum(square(0.37 * i * m.word(i) + (1.0 / (1 + i)) * m.word(i + 1))));
    return all;
  };
  const auto value_of = [&](int i) {
    double sum = 0;
    const std::vector<float> x = m.word(i).value(), y = m.word(i + 1).value();
    for (std::size_t c = 0; c < x.size(); ++c) sum += std::pow(0.37 * i * x[c] + y[c] / (1 + i), 2);
    return sum;
  };
  std::int64_t kinds = 0;
  for (int first : {0, 20, 40}) {
    const std::vector<LazyExpr> all = losses(first);
    m.graph.flush();
    for (int i : {0, 3, 19}) EXPECT_NEAR(all[static_cast<std::size_t>(i)].scalar(), value_of(first + i), 1e-2);
    if (first == 0) kinds = m.graph.stats().kinds;
    m.graph.clear();
  }
  EXPECT_EQ(m.graph.stats().kinds, kinds);
}

/// The mask that the operator has for this seed and these keys.
std::vector<float> dropped(WordGraph& m, const std::vector<float>& x, const std::vector<std::int32_t>& keys,
                           std::uint64_t seed) {
  const Tensor in = m.tensor(x, std::ssize(x));
  const IntTensor rows(m.host, 1, 3);
  rows.set(keys);
  return apply(m.host, op::dropout, {.in = {in}, .indices = {rows}, .attributes = op::dropout_by(0.5, seed, 3)}).get();
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

TEST(LazyRuns, AreOneKindWhateverSeedsTheyDropBy) {
  WordGraph m;
  const std::vector<float> ones(40, 1);
  std::int64_t kinds = 0;
  for (std::uint64_t step = 1; step <= 4; ++step) {
    std::vector<LazyExpr> masks;
    std::vector<std::vector<float>> expected;
    for (std::int32_t instance = 0; instance < 10; ++instance) {
      const std::uint64_t seed = step << 40 | static_cast<std::uint64_t>(instance % 2);
      const std::int32_t keys[] = {static_cast<std::int32_t>(step), instance, 0};
      masks.push_back(dropout(m.graph.input(ones), m.graph.index(keys), 0.5, seed, 3));
      expected.push_back(dropped(m, ones, {keys[0], instance, 0}, seed));
    }
    m.graph.flush();
    for (std::size_t i = 0; i < masks.size(); ++i) EXPECT_EQ(masks[i].value(), expected[i]) << step << " " << i;
    if (step == 1) kinds = m.graph.stats().kinds;
    m.graph.clear();
  }
  EXPECT_EQ(m.graph.stats().kinds, kinds);
  EXPECT_EQ(kinds, 1);
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
  std::vector<LazyExpr> words, losses;
  for (int i = 0; i < 13; ++i) words.push_back(m.word(i));
  m.graph.flush();
  const std::int64_t vertices = m.graph.stats().vertices;
  for (std::size_t begin = 0; begin < 6; ++begin)
    losses.push_back(row_sum(square(sum(std::span(words).subspan(begin, 7)))));
  m.graph.flush();
  EXPECT_EQ(m.graph.stats().vertices - vertices, 6);
  m.graph.backward(losses);
  double expected = 0;
  for (std::size_t c = 0; c < WordGraph::h; ++c) {
    double column = 0;
    for (std::size_t i = 0; i < 7; ++i) column += words[i].value()[c];
    expected += column * column;
  }
  EXPECT_NEAR(losses[0].scalar(), expected, 1e-4);
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
