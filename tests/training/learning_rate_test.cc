#include "windrow/training/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/engine/support.h"

namespace windrow::testing {
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

TEST(LearningRate, RefusesWhatNoFloatHolds) {
  EXPECT_EQ(error_of<MisuseError>([] { LearningRate(1e39); }),
            "learning rate 1e+39; expected a number, 0 or more, that a float holds");
  EXPECT_THROW(LearningRate::steps(1e39, 1, 0.5), MisuseError);
  EXPECT_THROW(LearningRate::steps(1, 1, 1e39), MisuseError);
  EXPECT_THROW(LearningRate::cosine(1e39, 5), MisuseError);
  EXPECT_THROW(LearningRate::cosine(1, 5, 1e39), MisuseError);
  EXPECT_THROW(LearningRate::warm_up(5, 1e39), MisuseError);
  EXPECT_THROW(LearningRate::from([](std::uint64_t) { return 1e39; })(0), MisuseError);
  const LearningRate grows = LearningRate::steps(0.1, 1, 10);
  EXPECT_NEAR(grows(38) / 1e37, 1, 1e-6);
  EXPECT_TRUE(error_of<MisuseError>([&] { grows(40); }).starts_with("learning rate of step 40: 1"));
  EXPECT_THROW(LearningRate::warm_up(50, grows)(95), MisuseError);
}

TEST(Plateau, TakesNoReportThatIsNotFiniteForAnImprovement) {
  for (const int at : {0, 3}) {
    for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      Plateau plateau{.factor = 0.5, .patience = 3};
      for (int k = 0; k < 40; ++k) ASSERT_EQ(plateau.report(k == at ? bad : 10.0 - 0.1 * k), 1) << k;
      EXPECT_NEAR(plateau.best, 10 - 3.9, 1e-9);
    }
  }
  Plateau plateau{.factor = 0.5, .patience = 1};
  plateau.report(NAN);
  EXPECT_EQ(plateau.report(NAN), 0.5);
}

TEST(Plateau, RefusesOptionsOutOfRange) {
  for (const Plateau& wrong :
       {Plateau{.factor = 10}, Plateau{.factor = 1}, Plateau{.factor = -1}, Plateau{.factor = NAN},
        Plateau{.threshold = -1}, Plateau{.threshold = 1}, Plateau{.least = NAN}, Plateau{.least = 2}}) {
    Plateau plateau = wrong;
    EXPECT_THROW(plateau.report(1), MisuseError);
    EXPECT_EQ(plateau.reports, 0U);
  }
  Plateau plateau{.factor = 10};
  EXPECT_EQ(error_of<MisuseError>([&] { plateau.report(1); }),
            "Plateau: factor 10; expected 0 or more, and less than 1");
}

TEST(Plateau, TakesNegativeMeasures) {
  Plateau plateau{.factor = 0.5, .patience = 0};
  plateau.report(-1);
  EXPECT_EQ(plateau.report(-2), 1);
  EXPECT_EQ(plateau.report(-2), 0.5);
}

}  // namespace
}  // namespace windrow::testing
