// Cells of lazy expressions whose lists hold several results of one cell, and cells with many optional indices.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>

#include "tests/batching/cells.h"
#include "tests/engine/support.h"
#include "tests/ops/cases.h"
#include "windrow/batching/lazy_cell.h"

namespace windrow {
namespace {

using testing::dense;
using testing::expect_close;

/// Cells that look up words.
struct WordCells {
  explicit WordCells(std::int64_t recompute_below = LazyOptions().recompute_below)
      : graph(host, parameters, {.recompute_below = recompute_below}) {}

  static constexpr Index h = 3;
  Engine engine{{.workers = 2}};
  const Device host = host_device(engine);
  Parameters parameters{host, 1};
  const Parameter words = parameters.add("words", 5, h, Initial::uniform(-1, 1));
  LazyGraph graph;

  /// Twice a word, and three times.
  LazyCell both() {
    return graph.cell("both", [this](CellBody& c) {
      const Expr x = embedding(words, c.index());
      c.result(2.0 * x);
      c.result(3.0 * x);
    });
  }
  LazyCell one() {
    return graph.cell("one", [this](CellBody& c) { c.result(embedding(words, c.index())); });
  }
};

/// In any order, in several flushes, and by two cells whose places hold different results first. The loss is the sum of
/// the squares of 2 w and 3 w, and for the other cell of their cubes.
TEST(LazyCells, ReadListsOfSeveralResultsOfOneCell) {
  WordCells s;
  constexpr Index h = WordCells::h;
  const LazyCell both = s.both(), one = s.one();
  const LazyCell squares =
      s.graph.cell("squares", [](CellBody& c) { c.result(row_sum(sum_children(square(c.each(h))))); });
  const LazyCell cubes = s.graph.cell("cubes", [](CellBody& c) { c.result(row_sum(sum_children(pow(c.each(h), 3)))); });
  const std::vector<float> words = s.parameters.value(s.words).get();
  const auto expect = [&](const std::vector<LazyExpr>& losses, auto loss, auto gradient) {
    s.graph.backward(losses);
    testing::Values expected(words.size());
    double all = 0, sum = 0;
    for (const LazyExpr& one_loss : losses) all += one_loss.scalar();
    for (std::size_t i = 0; i < 2 * h; ++i) {  // of two words
      sum += loss(static_cast<double>(words[i]));
      expected[i] = gradient(static_cast<double>(words[i]));
    }
    EXPECT_NEAR(all, sum, 1e-4);
    expect_close(dense(s.parameters, s.words), expected, 1e-5);
    s.graph.clear();
  };
  for (const bool flushed : {false, true}) {
    const auto [two, three] = both.call<2>({}, {s.graph.index(0)});
    const auto [other_two, other_three] = both.call<2>({}, {s.graph.index(1)});
    if (flushed) s.graph.flush();
    const std::vector<LazyExpr> losses = {
        squares({}, {}, std::array{two, three, other_two}), squares({}, {}, std::array{other_three}),
        cubes({}, {}, std::array{other_three, two, three}), cubes({}, {}, std::array{other_two})};
    expect(
        losses, [](double w) { return 13 * w * w + 35 * w * w * w; }, [](double w) { return 26 * w + 105 * w * w; });
  }
}

/// Random programs, in which lists, cells and other operations take results of cells with one and two results, inputs,
/// and values of operations, in any place and across flushes. Copies of all elements (`1 * x`) are the oracle.
class MixedLists {
 public:
  MixedLists(bool copies, std::int64_t recompute_below) : copies_(copies), s_(recompute_below) {}

  void forget() { s_.graph.forget(); }

  /// The loss, then the gradient of the words.
  std::vector<double> run(unsigned seed) {
    std::mt19937 random(seed);
    const auto draw = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    std::vector<LazyExpr> values, losses;
    const auto any = [&] { return values[draw(values.size())]; };
    const auto list = [&](std::size_t size) {
      std::vector<LazyExpr> elements;
      for (std::size_t i = 0; i < size; ++i) elements.push_back(copies_ ? 1 * any() : any());
      return elements;
    };
    const auto more = [&] {
      const LazyIndex word = s_.graph.index(static_cast<std::int32_t>(draw(5)));
      const LazyExpr missing;
      switch (draw(4)) {
        case 0:
          return values.push_back(one_({}, {word}));
        case 1:
          return values.push_back(s_.graph.input({1, -0.5f, 0.25f}));
        case 2:
          return values.push_back(values.empty() ? s_.graph.zeros(h) : tanh(any()));
        default:
          break;
      }
      const LazyExpr operand = values.empty() || draw(2) == 0 ? missing : any();
      auto [two, three] = both_.call<2>({operand}, {word});
      values.push_back(std::move(two));
      values.push_back(std::move(three));
    };
    for (int i = 0; i < 4; ++i) more();
    for (int i = 0; i < 8; ++i) {
      switch (draw(6)) {
        case 0:
          losses.push_back(squares_({}, {}, list(draw(4))));
          break;
        case 1:
          losses.push_back(pairs_({any()}, {}, list(2 * draw(4))));
          break;
        case 2:
          losses.push_back(row_sum(tanh(any())));
          break;
        case 3:
          losses.push_back(row_sum(any() * any()));
          break;
        case 4:
          s_.graph.flush();
          break;
        default:
          more();
      }
    }
    losses.push_back(pairs_({any()}, {}, list(4)));
    s_.graph.backward(losses);
    std::vector<double> results(1);
    for (const LazyExpr& loss : losses) results[0] += loss.scalar();
    for (const float gradient : s_.parameters.dense_gradient(s_.words).get()) results.push_back(gradient);
    s_.graph.clear();
    return results;
  }

 private:
  static constexpr Index h = WordCells::h;
  const bool copies_;
  WordCells s_;
  const LazyCell both_ = s_.graph.cell("both", [this](CellBody& c) {
    const Expr x = embedding(s_.words, c.index()), below = c.operand(h);
    c.result(2.0 * x + 0.5 * tanh(below));
    c.result(3.0 * x - 0.25 * below);
  });
  const LazyCell one_ = s_.one();
  const LazyCell squares_ =
      s_.graph.cell("squares", [](CellBody& c) { c.result(row_sum(sum_children(square(c.each(h))))); });
  const LazyCell pairs_ = s_.graph.cell("pairs", [](CellBody& c) {
    const Expr own = c.operand(h), x = c.each(h), y = c.each(h);
    c.result(row_sum(sum_children(x * tanh(y)) * own));
  });
};

TEST(LazyCells, ReadAnyResultsInAnyPlacesOfLists) {
  for (const std::int64_t recompute_below : {0, 20'000'000}) {
    MixedLists plain(false, recompute_below), copied(true, recompute_below);
    for (unsigned seed = 0; seed < 60; ++seed) {
      const std::vector<double> expected = copied.run(seed);
      std::optional<MixedLists> later;  // from a checkpoint
      if (seed % 20 == 19) {
        plain.forget();
        later.emplace(false, recompute_below);
      }
      std::vector<double> found;
      ASSERT_NO_THROW(found = plain.run(seed)) << "seed " << seed;
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i], expected[i], 1e-4 * (1 + std::abs(expected[i]))) << "seed " << seed << ", " << i;
      }
      if (later) {
        EXPECT_EQ(later->run(seed), found) << "seed " << seed;
      }
    }
  }
}

/// An operation takes a result that shares a state with another one, before or after a list reads the latter.
TEST(LazyCells, ReadListsBesideOperationsThatTakeTheOtherResults) {
  for (const int order : {0, 1, 2}) {
    WordCells s;
    constexpr Index h = WordCells::h;
    const LazyCell both = s.both(), one = s.one();
    const LazyCell sums = s.graph.cell("sums", [](CellBody& c) { c.result(row_sum(sum_children(c.each(h)))); });
    for (int i = 0; i < 2; ++i) {
      const auto [two, three] = both.call<2>({}, {s.graph.index(0)});
      const LazyExpr word = one({}, {s.graph.index(1)});
      LazyExpr listed = order == 0 ? sums({}, {}, std::array{two, word}) : LazyExpr();
      const LazyExpr taken = row_sum(tanh(three)), other = row_sum(tanh(word));
      if (order == 2) {
        EXPECT_TRUE(std::isfinite((taken + other).scalar()));
        const auto [again, unused] = both.call<2>({}, {s.graph.index(0)});
        listed = sums({}, {}, std::array{again, one({}, {s.graph.index(1)})});
      }
      if (order == 1) listed = sums({}, {}, std::array{two, word});
      const std::vector<float> words = s.parameters.value(s.words).get();
      double expected = 0;
      for (std::size_t c = 0; c < h; ++c) expected += 2 * words[c] + words[h + c];
      EXPECT_NEAR(listed.scalar(), expected, 1e-5) << order;
      s.graph.clear();
    }
  }
}

/// Elements of other widths, of which there is none so far.
TEST(LazyCells, ReadEmptyListsOfSeveralWidths) {
  WordCells s;
  const auto adding = [&](Index width) {
    return s.graph.cell("adding " + std::to_string(width),
                        [=](CellBody& c) { c.result(c.operand(width) + sum_children(c.each(width))); });
  };
  const LazyCell two = adding(2), three = adding(3);
  const auto x = [&] { return s.graph.input({1, 2}); };
  const auto y = [&] { return s.graph.input({1, 2, 3}); };
  const LazyExpr a = two({x()}), b = three({y()});
  EXPECT_EQ(a.value(), (std::vector<float>{1, 2}));
  EXPECT_EQ(b.value(), (std::vector<float>{1, 2, 3}));
  s.graph.clear();
  const LazyExpr list[] = {two({x()})};
  EXPECT_EQ(two({x()}, {}, list).value(), (std::vector<float>{2, 4}));
  EXPECT_EQ(three({y()}).value(), (std::vector<float>{1, 2, 3}));
}

/// Values and gradients of calls that each lack other indices.
TEST(LazyCells, TakeManyOptionalIndices) {
  WordCells s;
  constexpr Index h = WordCells::h;
  constexpr std::int32_t most = 12, calls = 10;
  const LazyCell bag = s.graph.cell("bag", [&](CellBody& c) {
    Expr sum = c.operand(h);
    for (std::int32_t k = 0; k < most; ++k) sum = sum + embedding(s.words, c.index(Presence::sometimes));
    c.result(sum);
  });
  const auto row = [](std::int32_t call, std::int32_t k) { return (call >> k % 4 & 1) == 0 ? -1 : (call + k) % 5; };
  const std::vector<float> words = s.parameters.value(s.words).get();
  std::vector<LazyExpr> losses;
  std::vector<float> expected(calls, 6);
  testing::Values counts(5 * h);
  for (std::int32_t call = 0; call < calls; ++call) {
    const auto index = [&](std::int32_t k) { return s.graph.index(row(call, k)); };
    losses.push_back(
        row_sum(bag({s.graph.input({1, 2, 3})}, {index(0), index(1), index(2), index(3), index(4), index(5), index(6),
                                                 index(7), index(8), index(9), index(10), index(11)})));
    for (std::int32_t k = 0; k < most; ++k) {
      for (std::int32_t c = 0; c < h && row(call, k) >= 0; ++c) {
        const auto at = static_cast<std::size_t>(row(call, k) * h + c);
        expected[static_cast<std::size_t>(call)] += words[at];
        ++counts[at];
      }
    }
  }
  s.graph.backward(losses);
  for (std::size_t call = 0; call < calls; ++call) EXPECT_NEAR(losses[call].scalar(), expected[call], 1e-4);
  EXPECT_EQ(dense(s.parameters, s.words), counts);
}

}  // namespace
}  // namespace windrow
