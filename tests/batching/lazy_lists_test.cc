// Functions of lists of lazy expressions: values and gradients, against the same functions in double precision.
#include "tests/batching/cells.h"

namespace windrow::testing {
namespace {

/// A list of rows of one width.
using List = std::vector<Values>;

constexpr std::size_t list_width = 3, longest = 40;

/// fold(column) for each column.
template <class Fold>
Values by_list_column(const List& rows, Fold fold) {
  Values result;
  for (std::size_t c = 0; c < list_width; ++c) {
    Values column;
    for (const Values& row : rows) column.push_back(row[c]);
    result.push_back(fold(column));
  }
  return result;
}

double log_sum_exp_of(const Values& x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double value : x) sum += std::exp(value - top);
  return top + std::log(sum);
}

/// A function of a list, for lazy expressions and in double precision.
struct Function {
  std::function<LazyExpr(const std::vector<LazyExpr>&)> lazy;
  std::function<Values(const List&)> exact;
};

class LazyLists : public ::testing::TestWithParam<std::size_t>, protected OnHost {
 protected:
  LazyLists() : OnHost({.workers = 2}, first_seed()) {
    std::mt19937 random(first_seed());
    for (std::size_t i = 0; i < longest; ++i) {
      rows.push_back(random_row(list_width, random));
      for (double value : rows.back()) values.push_back(static_cast<float>(value));
    }
    parameters.value(table).set(values);
  }

  /// Compares f of the first `count` rows, and the gradient of the sum of its elements times their numbers from 1 on.
  void check(const Function& f, std::size_t count) {
    graph.clear();
    std::vector<LazyExpr> list;
    for (std::size_t i = 0; i < count; ++i) list.push_back(embedding(table, graph.index(static_cast<std::int32_t>(i))));
    const LazyExpr result = f.lazy(list);
    std::vector<float> numbers;
    for (Index c = 0; c < result.width(); ++c) numbers.push_back(static_cast<float>(c + 1));
    const LazyExpr loss = row_dot(result, graph.input(numbers));
    graph.backward(std::array{loss});
    const std::vector<float> found = result.value();
    List some(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count));
    expect_close({found.begin(), found.end()}, f.exact(some), 1e-5);
    const auto loss_of = [&] {
      double sum = 0, number = 0;
      for (double value : f.exact(some)) sum += ++number * value;
      return sum;
    };
    Values expected(longest * list_width), gradient = dense(parameters, table);
    for (std::size_t i = 0; i < count * list_width; ++i) {
      double& value = some[i / list_width][i % list_width];
      const double before = value;
      value = before + 1e-6;
      const double above = loss_of();
      value = before - 1e-6;
      expected[i] = (above - loss_of()) / 2e-6;
      value = before;
    }
    expect_close(gradient, expected, 1e-4);
  }

  Parameter table = parameters.add("table", longest, list_width, Initial::zeros());
  Parameter filters = parameters.add("filters", 3 * list_width, 2, Initial::uniform(-1, 1));
  LazyGraph graph{host, parameters};
  List rows;
  std::vector<float> values;
};

INSTANTIATE_TEST_SUITE_P(OfLength, LazyLists, ::testing::Values(1, 2, 5, 17, 40));

TEST_P(LazyLists, AreReducedByColumn) {
  check({[](const auto& list) { return max(list); },
         [](const List& x) {
           return by_list_column(x,
                                 [](const Values& column) { return *std::max_element(column.begin(), column.end()); });
         }},
        GetParam());
  check({[](const auto& list) { return log_sum_exp(list); },
         [](const List& x) { return by_list_column(x, log_sum_exp_of); }},
        GetParam());
}

/// The first one asks. Every third one is hidden, but for the first.
TEST_P(LazyLists, AreAttendedToByDotProducts) {
  for (const bool masked : {false, true}) {
    const auto is_hidden = [&](std::size_t i) { return masked && i % 3 == 1; };
    check({[&](const auto& list) {
             std::vector<LazyExpr> masks;
             for (std::size_t i = 0; masked && i < list.size(); ++i) {
               masks.push_back(graph.input({is_hidden(i) ? -1e30f : 0}));
             }
             return dot_attention(list[0], list, list, masks);
           },
           [&](const List& x) {
             Values scores, sum(list_width, 0);
             for (std::size_t i = 0; i < x.size(); ++i) {
               scores.push_back(is_hidden(i) ? -1e30 : std::inner_product(x[0].begin(), x[0].end(), x[i].begin(), 0.0));
             }
             const double all = log_sum_exp_of(scores);
             for (std::size_t i = 0; i < x.size(); ++i) {
               for (std::size_t c = 0; c < list_width; ++c) sum[c] += std::exp(scores[i] - all) * x[i][c];
             }
             return sum;
           }},
          GetParam());
  }
}

TEST_F(LazyLists, AreRefusedAsKeysThatDoNotFit) {
  const std::vector<LazyExpr> three(3, graph.input({1, 2, 3})), one(3, graph.input({1}));
  const auto said = [&](auto call) { return error_of<MisuseError>(call); };
  EXPECT_EQ(said([&] { dot_attention(three[0], {}, {}); }), "dot_attention of no expressions; expected one or more");
  EXPECT_EQ(said([&] { dot_attention(three[0], three, std::span(three).first(2)); }),
            "dot_attention: 2 values for 3 keys; expected as many");
  EXPECT_EQ(said([&] { dot_attention(three[0], three, three, std::span(one).first(1)); }),
            "dot_attention: 1 masks for 3 keys; expected as many");
  EXPECT_EQ(said([&] { dot_attention(one[0], three, three); }),
            "dot_attention: the query is vertices x 1, key 0 is vertices x 3; expected one width");
  EXPECT_EQ(said([&] { dot_attention(three[0], three, three, three); }),
            "dot_attention: mask 0 is vertices x 3; expected a width of 1");
}

/// Weighted by themselves.
TEST_P(LazyLists, HaveASoftmaxAndAWeightedSum) {
  check({[](const auto& list) {
           std::vector<LazyExpr> scores;
           for (const LazyExpr& one : list) scores.push_back(slice(one, 0, 1));
           return weighted_sum(softmax(scores), list);
         },
         [](const List& x) {
           Values scores;
           for (const Values& row : x) scores.push_back(row[0]);
           const double all = log_sum_exp_of(scores);
           return by_list_column(x, [&](const Values& column) {
             double sum = 0;
             for (std::size_t i = 0; i < column.size(); ++i) sum += std::exp(scores[i] - all) * column[i];
             return sum;
           });
         }},
        GetParam());
}

TEST_P(LazyLists, ArePooledByTheLargestInTheirOrder) {
  const std::size_t k = std::min<std::size_t>(GetParam(), 3);
  check({[&](const auto& list) { return k_max(list, static_cast<Index>(k)); },
         [&](const List& x) {
           Values result(k * list_width);
           for (std::size_t c = 0; c < list_width; ++c) {
             Values column;
             for (const Values& row : x) column.push_back(row[c]);
             Values sorted = column;
             std::sort(sorted.rbegin(), sorted.rend());
             std::size_t next = 0;
             for (double value : column) {
               if (value >= sorted[k - 1]) result[next++ * list_width + c] = value;
             }
           }
           return result;
         }},
        GetParam());
}

TEST_P(LazyLists, AreConvolvedWithZerosAround) {
  const std::vector<float> weights = parameters.value(filters).get();
  check({[&](const auto& list) { return sum(conv1d(list, filters, 3)); },
         [&](const List& x) {
           Values result(2);
           for (std::size_t i = 0; i < x.size(); ++i) {
             for (std::size_t offset = 0; offset < 3; ++offset) {
               if (i + offset < 1 || i + offset - 1 >= x.size()) continue;
               for (std::size_t c = 0; c < 2 * list_width; ++c) {
                 const double weight = weights[(offset * list_width + c / 2) * 2 + c % 2];
                 result[c % 2] += x[i + offset - 1][c / 2] * weight;
               }
             }
           }
           return result;
         }},
        GetParam());
}

TEST_F(LazyLists, OfIndicesAreBags) {
  const std::vector<LazyIndex> bag = {graph.index(4), graph.index(1), graph.index(4)};
  const LazyExpr found = embedding_bag(table, bag);
  graph.backward(std::array{row_sum(found)});
  const std::vector<float> sums = found.value();
  for (std::size_t c = 0; c < list_width; ++c) {
    EXPECT_NEAR(sums[c], 2 * values[4 * list_width + c] + values[list_width + c], 1e-6);
  }
  const Values gradient = dense(parameters, table);
  EXPECT_EQ(gradient[4 * list_width], 2);
  EXPECT_EQ(gradient[list_width], 1);
  EXPECT_EQ(gradient[0], 0);
}

TEST_F(LazyLists, RefuseWhatDoesNotFit) {
  const std::vector<LazyExpr> none, one = {graph.input({1})}, two = {graph.input({1}), graph.input({1, 2})};
  const auto said = [](auto call) { return error_of<MisuseError>(call); };
  EXPECT_EQ(said([&] { max(none); }), "max of no expressions; expected one or more");
  EXPECT_EQ(said([&] { log_sum_exp(two); }),
            "log_sum_exp: operand 0 is vertices x 1, operand 1 is vertices x 2; expected one width");
  EXPECT_EQ(said([&] { softmax(none); }), "softmax of no expressions; expected one or more");
  EXPECT_EQ(said([&] { weighted_sum(one, two); }), "weighted_sum: 1 weights for 2 values; expected as many");
  EXPECT_EQ(said([&] { weighted_sum(std::span(two).last(1), one); }),
            "weighted_sum: weight 0 is vertices x 2; expected a width of 1");
  EXPECT_EQ(said([&] { k_max(one, 2); }), "k_max of 1 expressions: k 2; expected 1 to 1");
  EXPECT_EQ(
      said([&] { conv1d(one, filters, 3); }),
      "conv1d: values of width 1, a window of 3, filters 9 x 2; expected a window of 1 or more, and window * width "
      "rows of filters");
  EXPECT_EQ(said([&] { embedding_bag(table, {}); }), "embedding_bag of no rows; expected one or more");
  EXPECT_EQ(
      said([&] { argmax_matmul(one[0], filters); }),
      "argmax_matmul: operands vertices x 1, 9 x 2; expected as many rows of the second as the first is wide, one "
      "or more");
  EXPECT_EQ(said([&] { top_k(one[0], 2); }),
            "top_k: operands vertices x 1; expected a width that is a multiple of 1, and 2 or more");
  EXPECT_EQ(said([&] { maximum(filters, one[0]); }),
            "maximum: operands 9 x 2, vertices x 1; expected operands of one shape, or parameters of one row");
}

}  // namespace
}  // namespace windrow::testing
