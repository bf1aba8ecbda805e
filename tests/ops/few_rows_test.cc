// Products of few rows with a transposed matrix, against sums in double precision, and that grouping changes no bit.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "host/product.h"
#include "tests/seed.h"

namespace windrow {
namespace {

using testing::first_seed;

/// A matrix of random numbers with a stride larger than its width. What lies between rows is NaN.
struct RandomMatrix {
  RandomMatrix(Index n, Index m, std::mt19937& random) : rows(n), width(m), stride(m + 3) {
    elements.assign(static_cast<std::size_t>(rows * stride), std::nanf(""));
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (Index r = 0; r < rows; ++r) {
      for (Index c = 0; c < width; ++c) at(r, c) = uniform(random);
    }
  }
  float& at(Index r, Index c) { return elements[static_cast<std::size_t>(r * stride + c)]; }
  /// Rows and columns from here to the end.
  Matrix<float> from(Index row, Index column) { return {&at(row, column), rows - row, width - column, stride}; }
  Matrix<const float> one_row(Index row) { return {&at(row, 0), 1, width, stride}; }
  Matrix<const float> all() { return {elements.data(), rows, width, stride}; }

  const Index rows, width, stride;
  std::vector<float> elements;
};

TEST(FewRows, GiveTheSumsOfTheirProducts) {
  std::mt19937 random(first_seed());
  for (Index rows = 1; rows <= 33; ++rows) {
    for (const Index inner : {1, 7, 8, 19, 64, 129}) {
      for (const Index columns : {1, 2, 5, 12, 13, 27}) {
        for (const Write write : {Write::overwrite, Write::add}) {
          RandomMatrix x(rows, inner, random), y(columns, inner, random), out(rows, columns, random);
          RandomMatrix before = out;
          multiply_few_rows({{x.all()}, {y.all(), Factor::As::transposed}, out.from(0, 0), write});
          for (Index r = 0; r < rows; ++r) {
            for (Index c = 0; c < columns; ++c) {
              double sum = write == Write::add ? before.at(r, c) : 0;
              for (Index i = 0; i < inner; ++i) sum += static_cast<double>(x.at(r, i)) * y.at(c, i);
              ASSERT_NEAR(out.at(r, c), sum, 1e-5) << rows << ' ' << inner << ' ' << columns;
              before.at(r, c) = out.at(r, c);
            }
          }
          for (std::size_t i = 0; i < out.elements.size(); ++i) {
            ASSERT_EQ(std::isnan(out.elements[i]), std::isnan(before.elements[i])) << "wrote between rows";
          }
        }
      }
    }
  }
}

TEST(FewRows, GiveTheSumsOfTheirProductsWithAMatrixAsItIs) {
  std::mt19937 random(first_seed());
  for (const Index rows : {1, 2, 5, 6, 7, 8, 9, 17, 32}) {
    for (const Index inner : {0, 1, 7, 64, 384, 385, 1000}) {
      for (const Index columns : {1, 5, 16, 37, 100, 131}) {
        for (const Write write : {Write::overwrite, Write::add}) {
          RandomMatrix x(rows, inner, random), y(inner, columns, random), out(rows, columns, random);
          RandomMatrix before = out;
          const Matrix<const float> of_x{x.elements.data(), rows, inner, x.stride},
              of_y{y.elements.data(), inner, columns, y.stride};
          multiply_few_rows({{of_x}, {of_y}, out.from(0, 0), write});
          for (Index r = 0; r < rows; ++r) {
            for (Index c = 0; c < columns; ++c) {
              double sum = write == Write::add ? before.at(r, c) : 0;
              for (Index i = 0; i < inner; ++i) sum += static_cast<double>(x.at(r, i)) * y.at(i, c);
              ASSERT_NEAR(out.at(r, c), sum, 1e-4) << rows << ' ' << inner << ' ' << columns;
              before.at(r, c) = out.at(r, c);
            }
          }
          for (std::size_t i = 0; i < out.elements.size(); ++i) {
            ASSERT_EQ(std::isnan(out.elements[i]), std::isnan(before.elements[i])) << "wrote between rows";
          }
        }
      }
    }
  }
}

TEST(FewRows, GiveTheBitsOfARowAndAColumnAloneWithAMatrixAsItIs) {
  std::mt19937 random(first_seed());
  const Index rows = 19, columns = 101, inner = 500;
  RandomMatrix x(rows, inner, random), y(inner, columns, random), out(rows, columns, random), alone(1, 1, random);
  multiply_few_rows({{x.all()}, {y.all()}, out.from(0, 0), Write::overwrite});
  for (Index r = 0; r < rows; ++r) {
    for (Index c = 0; c < columns; ++c) {
      const Matrix<const float> column{&y.at(0, c), inner, 1, y.stride};
      multiply_few_rows({{x.one_row(r)}, {column}, alone.from(0, 0), Write::overwrite});
      ASSERT_EQ(out.at(r, c), alone.at(0, 0)) << r << ' ' << c;
    }
  }
}

TEST(FewRows, GiveTheBitsThatEachRowAndColumnHasAlone) {
  std::mt19937 random(first_seed());
  const Index rows = 11, columns = 29, inner = 43;
  RandomMatrix x(rows, inner, random), y(columns, inner, random), out(rows, columns, random), alone(1, 1, random);
  multiply_few_rows({{x.all()}, {y.all(), Factor::As::transposed}, out.from(0, 0), Write::overwrite});
  for (Index r = 0; r < rows; ++r) {
    for (Index c = 0; c < columns; ++c) {
      multiply_few_rows({{x.one_row(r)}, {y.one_row(c), Factor::As::transposed}, alone.from(0, 0), Write::overwrite});
      ASSERT_EQ(out.at(r, c), alone.at(0, 0)) << r << ' ' << c;
    }
  }
}

TEST(FewRows, AreChosenByTheShapeOfAProduct) {
  std::mt19937 random(first_seed());
  const Index inner = 128;  // up to 8 rows are few
  for (const auto& [rows, few] : {std::pair{1, true}, {3, true}, {8, true}, {9, false}, {64, false}}) {
    RandomMatrix x(rows, inner, random), y(40, inner, random), chosen(rows, 40, random), own = chosen;
    const Factor of_x{x.all()}, of_y{y.all(), Factor::As::transposed};
    const Product product{of_x, of_y, chosen.from(0, 0), Write::overwrite};
    EXPECT_EQ(has_few_rows(product), few) << rows << " rows";
    multiply(product);
    multiply_few_rows({of_x, of_y, own.from(0, 0), Write::overwrite});
    for (Index r = 0; r < rows; ++r) {
      for (Index c = 0; c < 40; ++c) {
        ASSERT_NEAR(chosen.at(r, c), own.at(r, c), 1e-4);
        // For more rows, oneDNN may add in the same order or not.
        if (few) {
          ASSERT_EQ(chosen.at(r, c), own.at(r, c));
        }
      }
    }
  }
}

TEST(FewRows, PassWhatIsNotANumber) {
  std::mt19937 random(first_seed());
  RandomMatrix x(3, 9, random), y(4, 9, random), out(3, 4, random);
  x.at(1, 8) = std::nanf("");
  multiply_few_rows({{x.all()}, {y.all(), Factor::As::transposed}, out.from(0, 0), Write::overwrite});
  for (Index r = 0; r < 3; ++r) {
    for (Index c = 0; c < 4; ++c) EXPECT_EQ(std::isnan(out.at(r, c)), r == 1);
  }
}

}  // namespace
}  // namespace windrow
