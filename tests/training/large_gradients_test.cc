// Gradients whose squares no float holds, and coefficients near 1.
#include "tests/training/rows_model.h"
#include "windrow/training/optimiser.h"

namespace windrow::testing {
namespace {

/// One parameter, in a row.
struct OneRow : OnHost {
  OneRow(Index width, const Method& method, const OptimiserOptions& options, NonFinite non_finite = NonFinite::fail)
      : OnHost({.workers = 2}, 1, {.non_finite = non_finite}),
        row(parameters.add("row", 1, width, Initial::zeros())),
        optimiser(parameters, method, options) {}

  Floats step(const Floats& gradient) {
    parameters.begin_minibatch();
    parameters.add_gradient(row, tensor(gradient, std::ssize(gradient)));
    optimiser.step(1);
    return parameters.value(row).get();
  }

  Parameter row;
  Optimiser optimiser;
};

const Method squaring[] = {Method::adagrad(), Method::rmsprop(), Method::adam()};

TEST(LargeGradients, AreScaledDownToTheLargestNorm) {
  constexpr float most = std::numeric_limits<float>::max();
  for (const NonFinite non_finite : {NonFinite::fail, NonFinite::skip}) {
    for (const double clip : {1e-3, 1.0, 1e4}) {
      for (const float big : {1e10f, 1e18f, 2e19f, 1e20f, 1e30f, 1e38f, most}) {
        SCOPED_TRACE(std::to_string(clip) + ", " + std::to_string(big));
        OneRow one(3, Method::sgd(), {.rate = 1, .clip_norm = clip}, non_finite);
        const Floats moved = one.step({big, -big, 0});
        EXPECT_NEAR(moved[0] / -clip, std::sqrt(0.5), 1e-4);
        EXPECT_NEAR(moved[1] / clip, std::sqrt(0.5), 1e-4);
        EXPECT_EQ(moved[2], 0);
        EXPECT_EQ(one.parameters.skipped_steps().count, 0U);
      }
    }
  }
}

TEST(LargeGradients, ThatAreInfiniteStillMakeParametersNaN) {
  for (const Method& method : squaring) {
    OneRow one(2, method, {});
    EXPECT_TRUE(std::isnan(one.step({std::numeric_limits<float>::infinity(), 1})[0])) << method.name;
  }
  OneRow one(2, Method::sgd(), {.clip_norm = 1});
  EXPECT_TRUE(std::isnan(one.step({std::numeric_limits<float>::infinity(), 1})[0]));
}

TEST(LargeGradients, LeaveElementsAlive) {
  for (const Method& method : squaring) {
    for (const float big : {1e15f, 1e19f, 1e20f, 1e30f, 3e38f}) {
      SCOPED_TRACE(method.name + ", " + std::to_string(big));
      OneRow one(9, method, {.rate = 0.01});
      Element spiked(method.name), plain(method.name);
      Floats values;
      double expected = 0, expected_plain = 0;
      for (int k = 0; k < 60; ++k) {
        const float g = k == 5 || k == 30 ? big : 1;
        values = one.step({1, g, 1, 1, 1, 1, 1, 1, g});
        expected = spiked.step(static_cast<double>(g));
        expected_plain = plain.step(1);
      }
      EXPECT_NEAR(values[1] / expected, 1, 1e-4);
      EXPECT_EQ(values[8], values[1]);
      EXPECT_NEAR(values[0] / expected_plain, 1, 1e-4);
    }
  }
}

TEST(LargeGradients, AreClippedByElementBeforeTheyAreSquared) {
  for (const Method& method : squaring) {
    for (const double clip_value : {0.5, 1e25}) {
      for (const double penalty : {0.0, 1e-4}) {
        SCOPED_TRACE(method.name + ", " + std::to_string(clip_value));
        OneRow one(3, method, {.rate = 0.01, .penalty = penalty, .clip_norm = 1e30, .clip_value = clip_value});
        Element clipped(method.name);
        Floats values;
        double expected = 0;
        values = one.step({1e38f, std::numeric_limits<float>::infinity(), 1});
        EXPECT_TRUE(std::isnan(values[0]));  // the norm is infinite
        OneRow no_norm(2, method, {.rate = 0.01, .penalty = penalty, .clip_value = clip_value});
        const int steps = method.name == "adagrad" ? 4 : 20;  // then its sum has reached the largest float
        for (int k = 0; k < steps; ++k) {
          values = no_norm.step({1e38f, std::numeric_limits<float>::infinity()});
          expected = clipped.step(clip_value);
        }
        EXPECT_NEAR(values[0] / expected, 1, 1e-3);
        EXPECT_EQ(values[1], values[0]);
      }
    }
  }
}

TEST(LargeGradients, StopTheSumsOfAdagradAtTheLargestFloat) {
  OneRow one(1, Method::adagrad(), {.rate = 0.01});
  for (int k = 0; k < 20; ++k) one.step({1e30f});
  const float before = one.step({1})[0], after = one.step({-1e30f})[0];
  EXPECT_TRUE(std::isfinite(before));
  EXPECT_GT(after, before);
}

TEST(Coefficients, NearOneKeepTheirMeaning) {
  for (const double near : {0.9, 0.999, 0.99999, 0.9999999, 0.99999999, 1 - 1e-12}) {
    SCOPED_TRACE(near);
    OneRow adam(1, Method::adam({.second = near}), {.rate = 0.01}),
        first(1, Method::adam({.first = near}), {.rate = 1}),
        rms(1, Method::rmsprop({.smoothing = near}), {.rate = 0.01});
    double expected = 0, v = 0;
    Floats of_adam, of_first, of_rms;
    for (int k = 0; k < 50; ++k) {
      of_adam = adam.step({1});
      of_first = first.step({1});
      of_rms = rms.step({1});
      v = near * v + (1 - near);
      expected -= 0.01 / (std::sqrt(v) + 1e-8);
    }
    EXPECT_NEAR(of_adam[0] / -0.5, 1, 2e-4);
    EXPECT_NEAR(of_first[0] / -50, 1, 2e-4);
    EXPECT_NEAR(of_rms[0] / expected, 1, 2e-4);
  }
}

}  // namespace
}  // namespace windrow::testing
