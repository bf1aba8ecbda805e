// Initial values of parameters.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/seed.h"
#include "windrow/batching/parameters.h"

namespace windrow::testing {
namespace {

class InitialValues : public ::testing::Test {
 protected:
  std::vector<float> of(Index rows, Index width, Initial initial) {
    return parameters.value(parameters.add("p" + std::to_string(parameters.size()), rows, width, initial)).get();
  }

  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, first_seed()};
};

/// Vectors within a matrix: the rows, or the columns.
struct Vectors {
  Index count, length;
  Index step, stride;  ///< from one vector to the next, and from one of its elements to the next
};

void expect_orthogonal(const std::vector<float>& x, const Vectors& of, double square) {
  const auto element = [&](Index vector, Index k) {
    return static_cast<double>(x[static_cast<std::size_t>(vector * of.step + k * of.stride)]);
  };
  for (Index i = 0; i < of.count; ++i) {
    for (Index j = 0; j <= i; ++j) {
      double dot = 0;
      for (Index k = 0; k < of.length; ++k) dot += element(i, k) * element(j, k);
      ASSERT_NEAR(dot, i == j ? square : 0, 1e-5) << i << ", " << j;
    }
  }
}

TEST_F(InitialValues, AreOrthogonalInTheShorterDirection) {
  for (const auto& [rows, width] : {std::pair<Index, Index>{60, 60}, {70, 17}, {17, 70}, {1, 5}, {5, 1}, {0, 3}}) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
    const std::vector<float> x = of(rows, width, Initial::orthogonal(2));
    const bool tall = rows >= width;
    expect_orthogonal(x, tall ? Vectors{width, rows, 1, width} : Vectors{rows, width, width, 1}, 4);
  }
}

TEST_F(InitialValues, AreDrawnInTheOrderOfParameters) {
  Parameters same(host, first_seed()), other(host, first_seed());
  const Initial draws[] = {Initial::orthogonal(), Initial::normal(0, 1), Initial::orthogonal()};
  std::vector<std::vector<float>> values;
  for (const Initial& draw : draws) values.push_back(of(4, 6, draw));
  for (std::size_t i = 0; i < std::size(draws); ++i) {
    EXPECT_EQ(same.value(same.add("p" + std::to_string(i), 4, 6, draws[i])).get(), values[i]);
  }
  EXPECT_NE(values[0], values[2]);
  other.add("first", 4, 6, Initial::normal(0, 1));
  EXPECT_EQ(other.value(other.add("second", 4, 6, Initial::normal(0, 1))).get(), values[1]);
}

TEST_F(InitialValues, MayBeTheIdentity) {
  EXPECT_EQ(of(2, 3, Initial::identity()), (std::vector<float>{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(of(3, 2, Initial::identity(0.5f)), (std::vector<float>{0.5f, 0, 0, 0.5f, 0, 0}));
}

TEST_F(InitialValues, KeepTheVarianceThroughRelu) {
  const auto mean_square = [](const std::vector<float>& x) {
    double sum = 0;
    for (float element : x) sum += static_cast<double>(element) * static_cast<double>(element);
    return sum / static_cast<double>(x.size());
  };
  EXPECT_NEAR(mean_square(of(200, 300, Initial::he_normal(200))), 2.0 / 200, 0.0005);
  EXPECT_NEAR(mean_square(of(200, 300, Initial::he_uniform(200))), 2.0 / 200, 0.0005);
}

}  // namespace
}  // namespace windrow::testing
