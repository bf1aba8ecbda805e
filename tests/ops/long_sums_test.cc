// Sums of very many terms on the host, against the exact sums; and products of few rows.
#include "tests/ops/cases.h"

namespace windrow::testing {
namespace {

constexpr double tenth = static_cast<double>(0.1f);
constexpr Index many = 1'000'003;

struct Shape {
  Index rows, width;
};

/// The first operands consist of the tenth, the second ones of ones, and so on.
Application equal_terms(std::vector<Shape> shapes, std::vector<double> values = {tenth, 1},
                        Attributes attributes = {}) {
  Application c{{.attributes = std::move(attributes)}};
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    c.signature.in.push_back({Rows::count(shapes[k].rows), shapes[k].width});
    c.in.emplace_back(static_cast<std::size_t>(shapes[k].rows * shapes[k].width), values[k]);
  }
  return c;
}

/// Checks all elements of the result, relative to `expected`, of which the result has 1 beforehand if it is added to.
void expect_all(const Operator& op, const Application& c, double expected) {
  const Values before(elements(infer(op, c.signature)), 1);
  for (const Write write : {Write::overwrite, Write::add}) {
    const double sum = expected + (write == Write::add ? 1 : 0);
    double worst = 0;
    for (const double value : run_host(op, c, before, write, 1)) worst = std::max(worst, std::abs(value / sum - 1));
    EXPECT_LE(worst, 5e-6) << op.name.text() << (write == Write::add ? ", added" : "");
  }
}

// The last matrix is too large for the kernel of few rows, with 40,000 terms and more.
constexpr Shape of_results[] = {{1, 1}, {1, 5}, {5, 1}, {3, 3}, {40, 2}, {1, 33}};

TEST(LongSums, LoseNoDigitsInProducts) {
  for (const Index terms : {Index{4097}, Index{40'000}, Index{300'001}}) {
    for (const auto [rows, columns] : of_results) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(terms) + " x " + std::to_string(columns));
      const double sum = static_cast<double>(terms) * tenth;
      expect_all(op::matmul, equal_terms({{rows, terms}, {terms, columns}}), sum);
      expect_all(op::matmul_nt, equal_terms({{rows, terms}, {columns, terms}}), sum);
      expect_all(op::matmul_tn, equal_terms({{terms, rows}, {terms, columns}}), sum);
    }
  }
}

TEST(LongSums, LoseNoDigitsInProductsOfEachRow) {
  const double sum = static_cast<double>(many) * tenth;
  for (const auto [rows, columns] : {Shape{1, 1}, Shape{1, 2}, Shape{2, 1}}) {
    const Application c =
        equal_terms({{2, rows * many}, {2, many * columns}}, {tenth, 1}, op::product_of(rows, many, columns));
    for (const Operator* op : {&op::matmul_each, &op::matmul_each_nt, &op::matmul_each_tn}) expect_all(*op, c, sum);
  }
}

TEST(LongSums, LoseNoDigitsInConvolutionsAndTheirGradients) {
  const op::Window2d window{.channels = 300, .height = 32, .width = 32, .window_height = 32, .window_width = 32};
  const Index inner = window.window();
  const double sum = static_cast<double>(inner) * tenth;
  for (const Index filters : {1, 3}) {
    expect_all(op::conv2d, equal_terms({{1, inner}, {filters, inner}}, {tenth, 1}, op::sliding(window)), sum);
  }
  const op::Window2d pixel{.channels = 1, .height = 1, .width = 1, .window_height = 1, .window_width = 1};
  expect_all(op::conv2d_data_gradient, equal_terms({{1, many}, {many, 1}}, {tenth, 1}, op::sliding(pixel)),
             static_cast<double>(many) * tenth);
  const op::Window2d image{.channels = 1, .height = 1000, .width = 1000, .window_height = 1, .window_width = 1};
  for (const Index filters : {1, 2}) {
    expect_all(op::conv2d_filter_gradient,
               equal_terms({{1, 1'000'000}, {1, filters * 1'000'000}}, {tenth, 1}, op::sliding(image)), 1e6 * tenth);
  }
}

TEST(LongSums, LoseNoDigitsInTheLogSemiring) {
  // The logarithm makes errors smaller, so the result is near 0.
  const double term = static_cast<double>(static_cast<float>(-std::log(static_cast<double>(many))));
  const double second = static_cast<double>(0.3f);
  Application c = equal_terms({{1, many}, {many, 1}}, {term, 0});
  c.in[0][7] = second;
  const double sum = std::exp(second) + static_cast<double>(many - 1) * std::exp(term);
  EXPECT_NEAR(run_host(op::log_matmul, c, {0}, Write::overwrite, 1)[0], std::log(sum), 2e-6);
  // One element of x, whose gradient is the sum over all columns; then one weight, whose gradient is that over all
  // rows.
  const double all = static_cast<double>(many) * tenth;
  expect_all(op::log_matmul_gradient, equal_terms({{1, 1}, {1, many}, {1, many}, {1, many}}, {0, 0, 0, tenth}), all);
  expect_all(op::log_matmul_weight_gradient, equal_terms({{many, 1}, {1, 1}, {many, 1}, {many, 1}}, {0, 0, 0, tenth}),
             all);
  expect_all(op::max_matmul_gradient, equal_terms({{1, 1}, {1, many}, {1, many}}, {0, 0, tenth}), all);
  expect_all(op::max_matmul_weight_gradient, equal_terms({{many, 1}, {1, 1}, {many, 1}}, {0, 0, tenth}), all);
}

TEST(LongSums, LoseNoDigitsInNormsOfLongRows) {
  std::mt19937 random(first_seed());
  std::uniform_real_distribution<float> uniform(0, 1);
  Application c = equal_terms({{1, many}}, {0}, op::with_epsilon(1e-5));
  double mean = 0, square = 0;
  for (double& x : c.in[0]) {
    x = static_cast<double>(uniform(random));
    mean += x / static_cast<double>(many);
    square += x * x / static_cast<double>(many);
  }
  for (const Operator* op : {&op::layer_norm, &op::rms_norm}) {
    const double centre = op == &op::layer_norm ? mean : 0, factor = 1 / std::sqrt(square - centre * centre + 1e-5);
    const Values values = run_host(*op, c, Values(c.in[0].size()), Write::overwrite, 1);
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      worst = std::max(worst, std::abs(values[i] - (c.in[0][i] - centre) * factor));
    }
    EXPECT_LE(worst, 1e-6) << op->name.text();
  }
}

TEST(LongSums, LoseNoDigitsInRowsThatManySegmentsShare) {
  const Index segments = 200'000;
  for (const auto& [op, expected] : {std::pair{&op::segment_spread, tenth}, {&op::segment_spread_mean, tenth / 2}}) {
    Application c = equal_terms({{segments, 2}}, {tenth}, op::to_rows(Rows::count(2)));
    c.signature.indices = {counted(segments, 2)};
    c.indices.emplace_back();
    for (Index s = 0; s < segments; ++s) c.indices[0].insert(c.indices[0].end(), {0, 2});
    expect_all(*op, c, static_cast<double>(segments) * expected);
  }
  Application c = equal_terms({{1, 2}, {segments, 2}}, {0, tenth});
  c.signature.indices = {counted(segments, 2)};
  c.indices.emplace_back();
  for (Index s = 0; s < segments; ++s) c.indices[0].insert(c.indices[0].end(), {0, 1});
  expect_all(op::segment_max_gradient, c, static_cast<double>(segments) * tenth);
}

/// Random operands of a product by matmul or matmul_nt, whose second matrix is transposed.
Application product(const Operator& op, Index rows, Index inner, Index columns, std::mt19937& random) {
  const Type x = counted(rows, inner);
  const Type y = &op == &op::matmul ? counted(inner, columns) : counted(columns, inner);
  return {{.in = {x, y}}, {random_values(x, random), random_values(y, random)}};
}

TEST(FewRows, GiveTheSumsOfTheirProducts) {
  std::mt19937 random(first_seed());
  for (const Operator* op : {&op::matmul, &op::matmul_nt}) {
    for (const Index rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 17, 32, 33}) {
      for (const Index inner : {0, 1, 7, 8, 19, 64, 129, 384, 385, 1000}) {
        for (const Index columns : {1, 2, 5, 12, 13, 16, 27, 37, 100, 131}) {
          SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(inner) + " x " + std::to_string(columns));
          const Application c = product(*op, rows, inner, columns, random);
          const Values before = random_values(infer(*op, c.signature), random);
          expect_close(run_host(*op, c, before, Write::overwrite, random()), evaluate(reference_kernels(), *op, c),
                       1e-5);
          expect_close(run_host(*op, c, before, Write::add, random()), evaluate(reference_kernels(), *op, c, before),
                       1e-5);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

/// Two rows at a time, since a single long row by a transposed matrix is left to oneDNN.
TEST(FewRows, GiveTheBitsThatTheyHaveInASmallerProduct) {
  std::mt19937 random(first_seed());
  constexpr std::ptrdiff_t rows = 18, inner = 500, columns = 101;
  for (const Operator* op : {&op::matmul, &op::matmul_nt}) {
    const Application c = product(*op, rows, inner, columns, random);
    const Values whole = run_host(*op, c, Values(rows * columns), Write::overwrite, 1);
    for (std::ptrdiff_t row = 0; row < rows; row += 2) {
      for (std::ptrdiff_t column = 0; column < columns; ++column) {
        Application small = product(*op, 2, inner, 1, random);
        small.in[0] = {c.in[0].begin() + row * inner, c.in[0].begin() + (row + 2) * inner};
        for (std::ptrdiff_t i = 0; i < inner; ++i) {
          const std::ptrdiff_t at = op == &op::matmul ? i * columns + column : column * inner + i;
          small.in[1][static_cast<std::size_t>(i)] = c.in[1][static_cast<std::size_t>(at)];
        }
        const auto expected = whole.begin() + row * columns + column;
        ASSERT_EQ(run_host(*op, small, {0, 0}, Write::overwrite, 1), (Values{expected[0], expected[columns]}))
            << op->name.text() << ", row " << row << ", column " << column;
      }
    }
  }
}

}  // namespace
}  // namespace windrow::testing
