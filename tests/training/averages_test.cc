#include <gtest/gtest.h>

#include "tests/training/rows_model.h"
#include "windrow/ops/static.h"
#include "windrow/training/optimiser.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;

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

TEST(Averages, GoOnFromTheirTensors) {
  RowsModel model, later;
  Averages averages(model.parameters, {.decay = 0}), other(later.parameters, {.decay = 0});
  train(model, averages, 2);
  other.restore(averages.updates());
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(other.tensors()[i].name, averages.tensors()[i].name);
    other.tensors()[i].tensor.set(averages.tensors()[i].tensor.get());
    later.parameters.value(later.parameters[i]).set(model.parameters.value(model.parameters[i]).get());
  }
  later.state = model.state;
  train(model, averages, 2);
  train(later, other, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(other.tensors()[i].tensor.get(), averages.tensors()[i].tensor.get());
  }
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
    Engine engine;
    const Device device = host_device(engine);
    Parameters parameters(device, 1);
    const Parameter w = parameters.add("w", 1, 1, Initial::zeros());
    const auto average_of = [&](Averages& averages) { return averages.tensors().front().tensor.get().front(); };
    Averages pushed(parameters, {.decay = decay}), recorded(parameters, {.decay = decay});
    Averages captured(parameters, {.decay = decay});
    Static step(device, [&](const StaticInputs&) -> std::vector<Tensor> {
      recorded.update();
      return {};
    });
    const Graph graph = engine.capture([&] { captured.update(); });
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
  EXPECT_THROW(Averages(model.parameters, {.decay = 1}), MisuseError);
  EXPECT_THROW(Averages(model.parameters, {.decay = -0.1}), MisuseError);
}

}  // namespace
}  // namespace windrow::testing
