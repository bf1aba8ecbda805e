#include "windrow/training/learning_rate.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "windrow/engine/error.h"

namespace windrow {
namespace {

TEST(LearningRate, IsConstantForANumber) {
  const LearningRate rate = 0.5;
  EXPECT_EQ(rate(0), 0.5);
  EXPECT_EQ(rate(1'000'000), 0.5);
}

TEST(LearningRate, OfStepsLowersTheRateAfterEachOfThem) {
  const LearningRate rate = LearningRate::steps(1, 3, 0.5);
  EXPECT_EQ(rate(2), 1);
  EXPECT_EQ(rate(3), 0.5);
  EXPECT_EQ(rate(5), 0.5);
  EXPECT_EQ(rate(6), 0.25);
}

TEST(LearningRate, OfACosineEndsAtItsLeastAndStaysThere) {
  const LearningRate rate = LearningRate::cosine(1, 4, 0.2);
  EXPECT_EQ(rate(0), 1);
  EXPECT_NEAR(rate(2), 0.6, 1e-12);
  EXPECT_NEAR(rate(4), 0.2, 1e-12);
  EXPECT_EQ(rate(100), rate(4));
}

TEST(LearningRate, WarmsUpLinearly) {
  const LearningRate rate = LearningRate::warm_up(4, LearningRate::steps(1, 2, 0.5));
  EXPECT_EQ(rate(0), 0.25);
  EXPECT_EQ(rate(3), 1);
  EXPECT_EQ(rate(4), 1);
  EXPECT_EQ(rate(6), 0.5);
  EXPECT_EQ(LearningRate::warm_up(0, 3)(0), 3);
}

TEST(LearningRate, RefusesWhatIsNoRate) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(LearningRate{nan}, MisuseError);
  EXPECT_THROW(LearningRate{-1.0}, MisuseError);
  EXPECT_THROW(LearningRate::steps(1, 0, 0.5), MisuseError);
  EXPECT_THROW(LearningRate::steps(1, 1, 0), MisuseError);
  EXPECT_THROW(LearningRate::cosine(1, 0), MisuseError);
  EXPECT_THROW(LearningRate::from({}), MisuseError);
  const LearningRate late = LearningRate::from([](std::uint64_t step) { return step < 3 ? 0.1 : -0.1; });
  EXPECT_EQ(late(2), 0.1);
  EXPECT_THROW(late(3), MisuseError);
  EXPECT_THROW(LearningRate::from([nan](std::uint64_t) { return nan; })(0), MisuseError);
}

TEST(Plateau, LowersTheRateWhenNothingImproves) {
  Plateau plateau{.factor = 0.5, .patience = 2, .least = 0.2};
  for (const double loss : {3.0, 2.0, 2.0, 1.99999}) EXPECT_EQ(plateau.report(loss), 1) << loss;
  EXPECT_EQ(plateau.report(2.5), 0.5);  // the third one in a row that is not better by the threshold
  EXPECT_EQ(plateau.report(1), 0.5);
  for (int i = 0; i < 3; ++i) plateau.report(1);
  EXPECT_EQ(plateau.lowered, 0.25);
  for (int i = 0; i < 3; ++i) plateau.report(1);
  EXPECT_EQ(plateau.lowered, 0.2);
}

TEST(Plateau, TakesNegativeMeasures) {
  Plateau plateau{.factor = 0.5, .patience = 0};
  plateau.report(-1);
  EXPECT_EQ(plateau.report(-2), 1);
  EXPECT_EQ(plateau.report(-2), 0.5);
}

}  // namespace
}  // namespace windrow
