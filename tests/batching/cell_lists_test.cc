// Cells of lazy expressions whose lists hold several results of one cell, and cells with many optional indices.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/batching/cells.h"
#include "tests/engine/support.h"
#include "tests/ops/cases.h"
#include "windrow/batching/lazy_cell.h"

namespace windrow {
namespace {

using testing::dense;
using testing::error_of;
using testing::expect_close;

/// Cells that look up words.
struct WordCells {
  static constexpr Index h = 3;
  Engine engine{{.workers = 2}};
  const Device host = host_device(engine);
  Parameters parameters{host, 1};
  const Parameter words = parameters.add("words", 5, h, Initial::uniform(-1, 1));
  LazyGraph graph{host, parameters};
};

/// In any order, in several flushes, and by two cells whose places hold different results first. The loss is the sum of
/// the squares of 2 w and 3 w, and for the other cell of their cubes.
TEST(LazyCells, ReadListsOfSeveralResultsOfOneCell) {
  WordCells s;
  constexpr Index h = WordCells::h;
  const LazyCell both = s.graph.cell("both", [&](CellBody& c) {
    const Expr x = embedding(s.words, c.index());
    c.result(2.0 * x);
    c.result(3.0 * x);
  });
  const LazyCell one = s.graph.cell("one", [&](CellBody& c) { c.result(embedding(s.words, c.index())); });
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
  // Whatever else the lists hold, but not in two places.
  const auto [two, three] = both.call<2>({}, {s.graph.index(0)});
  const LazyExpr word = one({}, {s.graph.index(1)});
  const LazyExpr of_two = squares({}, {}, std::array{two, word}), of_three = squares({}, {}, std::array{three, word});
  const LazyExpr cubed = cubes({}, {}, std::array{three, word});
  EXPECT_TRUE(std::isfinite((of_two + of_three + cubed).scalar()));
  const LazyCell pairs = s.graph.cell("pairs", [](CellBody& c) {
    const Expr x = c.each(h), y = c.each(h);
    c.result(row_sum(sum_children(x * y)));
  });
  const auto [again_two, again_three] = both.call<2>({}, {s.graph.index(0)});
  const LazyExpr other = one({}, {s.graph.index(1)});
  const LazyExpr refused = pairs({}, {}, std::array{again_two, other, other, again_three});
  EXPECT_EQ(error_of<MisuseError>([&] { refused.scalar(); }),
            "pairs: lists hold different results of one cell; expected one of them, or copies such as `1 * x`");
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
