// Reductions over children that are composed of others, and attention to children: values and gradients, against the
// same functions in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/batching/cells.h"
#include "tests/batching/random_row.h"
#include "tests/engine/support.h"
#include "tests/ops/cases.h"
#include "tests/seed.h"
#include "windrow/models/layers.h"

namespace windrow {
namespace {

using testing::error_of;
using testing::expect_close;
using testing::first_seed;
using testing::Graphs;
using testing::Values;
/// A list of rows of one width.
using List = std::vector<Values>;

constexpr std::size_t width = 3;
constexpr double hidden = -1e30;

/// Vertices that hand on a row of a tensor, and reduce those of their children. Edges have an input "mask".
struct Reduced {
  using Reduce = std::function<Expr(Vertex&, const Expr& own, const Expr& children)>;
  /// In double precision, of the vertex's own row, those of its children, and their masks.
  using Exact = std::function<Values(const Values& own, const List& children, const Values& masks)>;

  Engine engine{{.workers = 2}};
  const Device host = host_device(engine);
  Parameters parameters{host, first_seed()};

  void check(const Reduce& reduce, const Exact& exact) {
    SCOPED_TRACE("seed " + std::to_string(first_seed()));
    std::mt19937 random(first_seed());
    const VertexFunction function("reduced", {.arity = any_arity}, [&](Vertex& v) {
      const State state = v.state("h", width);
      const Expr own = v.pull_row("rows", width);
      v.scatter(state, own);
      const Expr result = reduce(v, own, v.each(state));
      v.push("result", result);
      v.loss(row_dot(result, v.constant(result.width(), 1) + tanh(result)));
    });
    GraphData data;
    List rows;
    std::vector<float> flat;
    Values masks;
    for (std::int32_t v = 0; v < 30; ++v) {
      for (std::uint32_t child = random() % 6; v > 0 && child > 0; --child) {
        data.children.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(v)));
        masks.push_back(random() % 3 == 0 ? hidden : 0);
      }
      data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
      rows.push_back(testing::random_row(width, random));
      for (double value : rows.back()) flat.push_back(static_cast<float>(value));
    }
    data.edge_values["mask"] = {masks.begin(), masks.end()};
    const Tensor given(host, static_cast<Index>(rows.size()), width);
    given.set(flat);
    Runner runner(host, function, parameters);
    const Graphs graphs(function, {data});
    const Minibatch minibatch = runner.differentiate(graphs.pointers, {{"rows", {given}}});
    const std::vector<float> result = minibatch.output("result").get(), slopes = minibatch.gradient("rows").get();
    const auto all = [&] {
      Values values;
      for (std::size_t v = 0; v < rows.size(); ++v) {
        List children;
        const auto begin = static_cast<std::size_t>(data.child_begin[v]);
        const auto end = static_cast<std::size_t>(data.child_begin[v + 1]);
        for (std::size_t e = begin; e < end; ++e) children.push_back(rows[static_cast<std::size_t>(data.children[e])]);
        const auto first = masks.begin() + static_cast<std::ptrdiff_t>(begin);
        const Values one = exact(rows[v], children, {first, first + static_cast<std::ptrdiff_t>(end - begin)});
        values.insert(values.end(), one.begin(), one.end());
      }
      return values;
    };
    expect_close({result.begin(), result.end()}, all(), 1e-5);
    const auto loss = [&] {
      double sum = 0;
      for (double value : all()) sum += value * (1 + std::tanh(value));
      return sum;
    };
    Values expected;
    for (Values& row : rows) {
      for (double& value : row) {
        const double before = value;
        value = before + 1e-6;
        const double above = loss();
        value = before - 1e-6;
        expected.push_back((above - loss()) / 2e-6);
        value = before;
      }
    }
    expect_close({slopes.begin(), slopes.end()}, expected, 1e-4);
  }
};

/// Zeros without children; otherwise fold(column) for each column.
template <class Fold>
Values by_column(const List& rows, Fold fold) {
  Values result;
  for (std::size_t c = 0; c < width; ++c) {
    Values column;
    for (const Values& row : rows) column.push_back(row[c]);
    result.push_back(column.empty() ? 0 : fold(column));
  }
  return result;
}

Values softmax_of(const Values& x) {
  Values shares;
  double sum = 0;
  for (double value : x) sum += std::exp(value - *std::max_element(x.begin(), x.end()));
  for (double value : x) shares.push_back(std::exp(value - *std::max_element(x.begin(), x.end())) / sum);
  return shares;
}

TEST(Children, HaveALogSumExp) {
  Reduced().check([](Vertex&, const Expr&, const Expr& x) { return log_sum_exp_children(x); },
                  [](const Values&, const List& children, const Values&) {
                    return by_column(children, [](const Values& x) {
                      double sum = 0;
                      for (double value : x) sum += std::exp(value);
                      return std::log(sum);
                    });
                  });
}

/// A child may stand in several places; then its elements count as often.
TEST(Children, HaveTheirLargestElementsFirst) {
  Reduced().check([](Vertex&, const Expr&, const Expr& x) { return k_max_children(x, 3); },
                  [](const Values&, const List& children, const Values&) {
                    Values result(3 * width, 0);
                    for (std::size_t c = 0; c < width; ++c) {
                      Values column;
                      for (const Values& row : children) column.push_back(row[c]);
                      std::sort(column.rbegin(), column.rend());
                      column.resize(3, 0);
                      for (std::size_t i = 0; i < 3; ++i) result[i * width + c] = column[i];
                    }
                    return result;
                  });
}

TEST(Children, AreAttendedToByDotProducts) {
  Reduced().check([](Vertex&, const Expr& own, const Expr& x) { return attend(DotAttention(), own, x, x); },
                  [](const Values& own, const List& children, const Values&) {
                    Values scores;
                    for (const Values& child : children) {
                      double score = 0;
                      for (std::size_t c = 0; c < width; ++c) score += own[c] * child[c] / std::sqrt(width);
                      scores.push_back(score);
                    }
                    const Values shares = softmax_of(scores);
                    return by_column(children, [&](const Values& x) {
                      return std::inner_product(x.begin(), x.end(), shares.begin(), 0.0);
                    });
                  });
}

/// A vertex all of whose children are hidden attends to all alike.
TEST(Children, AreAttendedToByANetworkUnlessTheyAreHidden) {
  Reduced reduced;
  const AdditiveAttention attention(reduced.parameters, "attention", {width, width, 4});
  const auto of = [&](const char* name) { return reduced.parameters.value(reduced.parameters.find(name)).get(); };
  const std::vector<float> query = of("attention query"), key = of("attention key"), score = of("attention score");
  reduced.check(
      [&](Vertex& v, const Expr& own, const Expr& x) {
        const Expr mask = v.pull_edge("mask", 1);
        return attend(attention, own, x, x, mask);
      },
      [&](const Values& own, const List& children, const Values& masks) {
        Values scores;
        for (std::size_t i = 0; i < children.size(); ++i) {
          double sum = masks[i];
          for (std::size_t h = 0; h < 4; ++h) {
            double inner = 0;
            for (std::size_t c = 0; c < width; ++c) {
              inner += own[c] * query[c * 4 + h] + children[i][c] * key[c * 4 + h];
            }
            if (masks[i] == 0) sum += std::tanh(inner) * score[h];
          }
          scores.push_back(sum);
        }
        const Values shares = softmax_of(scores);
        return by_column(children,
                         [&](const Values& x) { return std::inner_product(x.begin(), x.end(), shares.begin(), 0.0); });
      });
}

TEST(Children, AreReducedOnlyWhereThereAreEdges) {
  const auto said = [](auto body) {
    return error_of<MisuseError>([&] { VertexFunction("cell", {.arity = any_arity}, body); });
  };
  const std::string of_edges = "cell: a reduction over children of vertices x 2; expected a value of edges";
  EXPECT_EQ(said([](Vertex& v) { k_max_children(v.pull("x", 2), 2); }), of_edges);
  EXPECT_EQ(said([](Vertex& v) { softmax_children(v.pull("x", 2)); }), of_edges);
  EXPECT_EQ(said([](Vertex& v) { log_sum_exp_children(v.pull("x", 2)); }), of_edges);
  EXPECT_EQ(said([](Vertex& v) { k_max_children(v.pull_edge("x", 2), 0); }), "k_max_children: k 0; expected 1 or more");
}

}  // namespace
}  // namespace windrow
