// Averages of parameters, and learning rates.

#include "tests/training/rows_model.h"
#include "windrow/ops/static.h"
#include "windrow/training/learning_rate.h"
#include "windrow/training/optimiser.h"

namespace windrow::testing {
namespace {

/// The values after each step of descent.
std::vector<Floats> train(RowsModel& model, Averages& averages, int steps) {
  std::vector<Floats> values;
  for (int i = 0; i < steps; ++i) {
    model.differentiate(model.draw_samples(3));
    model.parameters.sgd(0.1);
    averages.update();
    values.push_back(model.values());
  }
  return values;
}

TEST(Averages, GiveTheValuesBack) {
  RowsModel model;
  Averages averages(model.parameters);
  averages.swap();  // of no updates
  const Floats last = train(model, averages, 2).back();
  averages.swap();
  EXPECT_NE(model.values(), last);
  EXPECT_THROW(averages.update(), MisuseError);
  EXPECT_THROW(averages.tensors(), MisuseError);
  averages.swap();
  EXPECT_EQ(model.values(), last);
}

/// A parameter that was added later has had fewer updates, and goes on from these.
TEST(Averages, GoOnFromTheUpdatesOfEachParameter) {
  RowsModel model;
  Averages averages(model.parameters, {.decay = 0});
  train(model, averages, 2);
  const Parameter late = model.parameters.add("late", 1, 1, Initial::constant(6));
  averages.update();
  EXPECT_EQ(averages.progress().updates, 3U);
  EXPECT_EQ(averages.progress().updates_of, (std::map<std::string, std::uint64_t>{{"late", 1}}));
  averages.restore(averages.progress());
  model.parameters.value(late).set({0});
  averages.update();
  EXPECT_EQ(averages.tensors().back().tensor.get(), Floats{3});
}

/// An update in a Static or in a captured graph counts each time that it is replayed.
TEST(Averages, AreThoseOfReplaysToo) {
  for (const double decay : {0.0, 0.5}) {
    OnHost s;
    Parameters& parameters = s.parameters;
    const Parameter w = parameters.add("w", 1, 1, Initial::zeros());
    const auto average_of = [&](Averages& averages) { return averages.tensors().front().tensor.get().front(); };
    Averages pushed(parameters, {.decay = decay}), recorded(parameters, {.decay = decay});
    Averages captured(parameters, {.decay = decay});
    Static step(s.host, [&](const StaticInputs&) -> std::vector<Tensor> {
      recorded.update();
      return {};
    });
    const Graph graph = s.engine.capture([&] { captured.update(); });
    for (const float value : {1, 5, -2, 8}) {
      parameters.value(w).set({value});
      pushed.update();
      step({});
      graph.launch();
    }
    EXPECT_EQ(average_of(pushed), decay == 0 ? 3 : 4.25f);
    EXPECT_EQ(average_of(recorded), average_of(pushed));
    EXPECT_EQ(average_of(captured), average_of(pushed));
    EXPECT_EQ(recorded.updates(), 4u);
    EXPECT_EQ(captured.updates(), 4u);
  }
}

TEST(Averages, RefuseDecaysOutOfRange) {
  RowsModel model;
  for (const double wrong : {1.0, -0.1}) EXPECT_THROW(Averages(model.parameters, {.decay = wrong}), MisuseError);
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

TEST(LearningRate, RefusesWhatIsNoRateOrWhatNoFloatHolds) {
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
