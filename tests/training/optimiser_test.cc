// Optimisers: against PyTorch, and what PyTorch has no equal of.
#include "windrow/training/optimiser.h"

#include <fstream>
#include <sstream>

#include "tests/training/rows_model.h"
#include "windrow/ops/static.h"

namespace windrow::testing {
namespace {

/// The settings that a line of the stored references names: see perf/peers/torch_optimisers.py.
struct Case {
  Method method = Method::sgd();
  OptimiserOptions options = {.rate = 0.1};

  explicit Case(const std::string& line) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    std::map<std::string, bool> with;
    for (std::string word; words >> word;) with[word] = true;
    if (name == "momentum") {
      using Form = Method::Momentum::Form;
      method = Method::momentum({.form = with["nesterov"] ? Form::nesterov : Form::heavy_ball});
    }
    if (name == "adagrad") method = Method::adagrad({.initial = with["initial"] ? 0.5 : 0});
    if (name == "rmsprop") method = Method::rmsprop();
    if (name == "adam") method = Method::adam();
    if (with["penalty"]) options.penalty = 0.1;
    if (with["decay"]) options.decay = 0.1;
    if (with["clip_norm"]) options.clip_norm = 0.5;
    if (with["clip_value"]) options.clip_value = 0.25;
    if (with["accumulate"]) options.accumulate = 2;
    if (with["steps"]) options.rate = LearningRate::steps(0.1, 2, 0.5);
    if (with["cosine"]) options.rate = LearningRate::cosine(0.1, 4, 0.01);
  }
};

/// By case, the values after each step.
std::map<std::string, std::vector<Floats>> stored_references() {
  std::ifstream file(std::string(WINDROW_SOURCE_DIR) + "/tests/training/torch_optimisers.txt");
  EXPECT_TRUE(file);
  std::map<std::string, std::vector<Floats>> all;
  std::string name;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    if (std::isalpha(line[0]) != 0) {
      name = line;
      continue;
    }
    std::istringstream numbers(line);
    Floats& values = all[name].emplace_back();
    for (float value; numbers >> value;) values.push_back(value);
  }
  return all;
}

void train(RowsModel& model, Optimiser& optimiser, const std::vector<RowsModel::Sample>& samples) {
  model.differentiate(samples);
  optimiser.step(samples.size());
}

TEST(Optimiser, TakesTheStepsOfPyTorch) {
  const auto references = stored_references();
  ASSERT_GE(references.size(), 17u);
  for (const auto& [name, steps] : references) {
    SCOPED_TRACE(name);
    for (const auto tables : {OptimiserOptions::Tables::dense, OptimiserOptions::Tables::lazy}) {
      // A row without gradient stands still by these methods, so that lazy steps are the same.
      const bool same = name == "adagrad" || name == "sgd" || name == "sgd clip_value" || name == "sgd clip_norm";
      if (tables == OptimiserOptions::Tables::lazy && !same) continue;
      Case one(name);
      one.options.tables = tables;
      RowsModel model;
      Optimiser optimiser(model.parameters, one.method, one.options);
      for (const Floats& expected : steps) {
        for (std::uint64_t i = 0; i < one.options.accumulate; ++i) {
          train(model, optimiser, model.draw_samples(3));
        }
        expect_near(model.values(), expected, 1e-5);
        if (HasFatalFailure()) return;
      }
      EXPECT_EQ(optimiser.progress().steps, steps.size());
    }
  }
}

std::vector<Method> all_methods() {
  return {Method::sgd(),     Method::momentum(), Method::momentum({.form = Method::Momentum::Form::nesterov}),
          Method::adagrad(), Method::rmsprop(),  Method::adam()};
}

TEST(Optimiser, GivesTheSameBitsForAnyNumberOfWorkersAndPolicy) {
  for (const Method& method : all_methods()) {
    SCOPED_TRACE(method.name);
    std::vector<Floats> results;
    for (const EngineOptions& options :
         {EngineOptions{.policy = Policy::serial}, EngineOptions{.policy = Policy::pool, .workers = 1},
          EngineOptions{.policy = Policy::pool, .workers = 2}, EngineOptions{.policy = Policy::pool, .workers = 8},
          EngineOptions{.policy = Policy::chaos, .workers = 3}}) {
      RowsModel model({.engine = options, .rows = 700, .width = 900});  // large enough to be cut
      Optimiser optimiser(model.parameters, method, {.rate = 0.1, .penalty = 0.01, .clip_norm = 0.5, .accumulate = 2});
      for (int i = 0; i < 4; ++i) {
        train(model, optimiser, model.draw_samples(5));
      }
      results.push_back(model.values());
    }
    for (const Floats& values : results) EXPECT_EQ(values, results[0]);
  }
}

TEST(Optimiser, LeavesRowsThatNoLookupUsedAlone) {
  for (const Method& method : all_methods()) {
    SCOPED_TRACE(method.name);
    RowsModel lazy, dense;
    Optimiser one(lazy.parameters, method, {.rate = 0.1, .penalty = 0.1, .decay = 0.1});
    Optimiser other(dense.parameters, method,
                    {.rate = 0.1, .penalty = 0.1, .decay = 0.1, .tables = OptimiserOptions::Tables::dense});
    const std::vector<RowsModel::Sample> samples = {
        {1, {1, 2}, {1, 2, 3, 4}}, {4, {1, 2}, {1, 2, 3, 4}}, {1, {0, 2}, {1, 2, 3, 4}}};
    const Floats before = lazy.parameters.value(lazy.table).get();
    for (int i = 0; i < 3; ++i) {
      train(lazy, one, samples);
      train(dense, other, samples);
    }
    const Floats after = lazy.parameters.value(lazy.table).get(), all = dense.parameters.value(dense.table).get();
    EXPECT_EQ(lazy.parameters.value(lazy.matrix).get(), dense.parameters.value(dense.matrix).get());
    for (std::size_t i = 0; i < before.size(); ++i) {
      const bool used = i / 2 == 1 || i / 2 == 4;
      EXPECT_EQ(after[i], used ? all[i] : before[i]) << i;
      EXPECT_NE(all[i], before[i]) << i;
    }
  }
}

TEST(Optimiser, FreezesParametersAndScalesTheRatesOfOthers) {
  RowsModel plain, scaled;
  Optimiser one(plain.parameters, Method::sgd(), {.rate = 0.1});
  Optimiser other(scaled.parameters, Method::sgd(), {.rate = 0.1});
  scaled.parameters.freeze(scaled.table);
  other.set(scaled.matrix, {.rate_factor = 0.5});
  const Floats matrix = plain.parameters.value(plain.matrix).get(), table = plain.parameters.value(plain.table).get();
  train(plain, one, plain.draw_samples(3));
  train(scaled, other, scaled.draw_samples(3));
  EXPECT_EQ(scaled.parameters.value(scaled.table).get(), table);
  const Floats full = plain.parameters.value(plain.matrix).get(), half = scaled.parameters.value(scaled.matrix).get();
  for (std::size_t i = 0; i < full.size(); ++i) EXPECT_NEAR(half[i] - matrix[i], (full[i] - matrix[i]) / 2, 1e-7);
  RowsModel third;
  EXPECT_THROW(other.set(third.matrix, {}), MisuseError);
}

TEST(Optimiser, ClipsByTheNormOfAllThatChanges) {
  // What is frozen does not count.
  RowsModel both, one;
  Optimiser clips(both.parameters, Method::sgd(), {.rate = 1, .clip_norm = 0.25});
  Optimiser freezes(one.parameters, Method::sgd(), {.rate = 1, .clip_norm = 0.25});
  one.parameters.freeze(one.table);
  const auto change = [](RowsModel& model, Optimiser& optimiser) {
    const Floats before = model.values();
    train(model, optimiser, model.draw_samples(3));
    double sum = 0;
    const Floats after = model.values();
    for (std::size_t i = 0; i < after.size(); ++i) sum += std::pow(after[i] - before[i], 2);
    return std::sqrt(sum);
  };
  EXPECT_NEAR(change(both, clips), 0.25, 1e-5);
  EXPECT_NEAR(change(one, freezes), 0.25, 1e-5);
}

/// PyTorch 2: torch.optim.SGD, Adagrad, RMSprop and Adam.
TEST(Optimiser, HasTheRatesOfPyTorchUnlessItIsGivenOne) {
  RowsModel model;
  const auto rate_of = [&](const Method& method) { return Optimiser(model.parameters, method).rate(); };
  EXPECT_EQ(rate_of(Method::sgd()), 1e-3);
  EXPECT_EQ(rate_of(Method::momentum()), 1e-3);
  EXPECT_EQ(rate_of(Method::adagrad()), 1e-2);
  EXPECT_EQ(rate_of(Method::rmsprop()), 1e-2);
  EXPECT_EQ(rate_of(Method::adam()), 1e-3);
  EXPECT_EQ(Optimiser(model.parameters, Method::adam(), {.rate = 0.5}).rate(), 0.5);
}

double norm_of_gradients(const RowsModel& model, double samples) {
  double sum = 0;
  for (const Parameter& parameter : {model.matrix, model.table}) {
    for (const float element : model.parameters.dense_gradient(parameter).get()) sum += std::pow(element, 2);
  }
  return std::sqrt(sum) / samples;
}

TEST(Optimiser, TellsTheNormThatClippingSaw) {
  RowsModel model;
  Optimiser clips(model.parameters, Method::sgd(), {.rate = 0.1, .clip_norm = 0.25});
  EXPECT_EQ(error_of<MisuseError>([&] { clips.last_norm(); }),
            "optimiser: last_norm() before the first step; expected a step that limits the norm");
  for (int step = 0; step < 2; ++step) {
    train(model, clips, model.draw_samples(3));
    EXPECT_NEAR(clips.last_norm(), norm_of_gradients(model, 3), 1e-5);
    EXPECT_GT(clips.last_norm(), 0.25);
  }
  Optimiser does_not(model.parameters, Method::sgd(), {.rate = 0.1});
  train(model, does_not, model.draw_samples(3));
  EXPECT_EQ(error_of<MisuseError>([&] { does_not.last_norm(); }),
            "optimiser: last_norm() without clip_norm; expected a step that limits the norm");
  model.parameters.forget_gradients();
  clips.step(1);
  EXPECT_EQ(clips.last_norm(), 0);
}

TEST(Optimiser, TellsTheNormOfCapturedAndReplayedSteps) {
  RowsModel model;
  Optimiser captured(model.parameters, Method::sgd(), {.rate = 0, .clip_norm = 0.25}),
      replayed(model.parameters, Method::sgd(), {.rate = 0, .clip_norm = 0.25});
  const Tensor gradient(model.host, model.rows, model.width);
  Static step(model.host, [&](const StaticInputs& inputs) -> std::vector<Tensor> {
    model.parameters.forget_gradients();
    model.parameters.set_gradient(model.matrix, inputs.in[0]);
    replayed.step(2);
    return {};
  });
  model.parameters.set_gradient(model.matrix, gradient);
  const Graph graph = model.engine.capture([&] { captured.step(2); });
  for (const float element : {1.0f, 3.0f, 5.0f}) {
    gradient.set(Floats(static_cast<std::size_t>(model.rows * model.width), element));
    const double norm = element * std::sqrt(static_cast<double>(model.rows * model.width)) / 2;
    graph.launch();
    EXPECT_NEAR(captured.last_norm(), norm, 1e-5);
    step({.in = {gradient}});
    EXPECT_NEAR(replayed.last_norm(), norm, 1e-5);
  }
}

/// A loss times a power of two, and a step of as many times the samples: the same bits. A scale that is too large for
/// the gradients skips the step.
TEST(Optimiser, TakesTheStepsOfScaledLosses) {
  constexpr std::size_t scale = 1024;
  RowsModel plain, scaled({.loss_scale = scale}), too_large({.non_finite = NonFinite::skip, .loss_scale = 0x1p127});
  const auto before = too_large.values();
  const auto optimiser = [](RowsModel& model) {
    return Optimiser(model.parameters, Method::adam(), {.rate = 0.1, .penalty = 0.1, .clip_norm = 0.25});
  };
  Optimiser of_plain = optimiser(plain), of_scaled = optimiser(scaled), of_too_large = optimiser(too_large);
  for (int step = 0; step < 3; ++step) {
    const auto samples = plain.draw_samples(4);
    for (RowsModel* model : {&plain, &scaled, &too_large}) model->differentiate(samples);
    of_plain.step(4);
    of_scaled.step(4 * scale);
    of_too_large.step(std::size_t{1} << 63);
    ASSERT_EQ(scaled.values(), plain.values()) << step;
  }
  EXPECT_EQ(too_large.values(), before);
  EXPECT_EQ(too_large.parameters.skipped_steps().count, 3u);
}

TEST(Optimiser, AccumulatesWhatOneLargeMinibatchGives) {
  RowsModel parts, whole;
  Optimiser accumulates(parts.parameters, Method::sgd(), {.rate = 0.1, .accumulate = 3});
  Optimiser at_once(whole.parameters, Method::sgd(), {.rate = 0.1});
  for (int step = 0; step < 2; ++step) {
    const auto samples = whole.draw_samples(7);
    train(whole, at_once, samples);
    for (const auto& [begin, end] : {std::pair(0, 2), std::pair(2, 3), std::pair(3, 7)}) {
      train(parts, accumulates, {samples.begin() + begin, samples.begin() + end});
    }
    const Floats expected = whole.values(), values = parts.values();
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-6) << i;
  }
  EXPECT_EQ(accumulates.progress().steps, 2u);
  const auto samples = whole.draw_samples(3);
  train(whole, at_once, samples);
  train(parts, accumulates, samples);
  EXPECT_TRUE(accumulates.between_steps());
  accumulates.finish();
  EXPECT_FALSE(accumulates.between_steps());
  for (RowsModel* model : {&whole, &parts}) model->differentiate(samples);  // not added to those before
  EXPECT_EQ(parts.parameters.dense_gradient(parts.matrix).get(), whole.parameters.dense_gradient(whole.matrix).get());
}

TEST(Optimiser, FollowsTheScheduleInCapturedSteps) {
  RowsModel model, replayed;
  const OptimiserOptions options = {.rate = LearningRate::steps(0.1, 1, 0.5), .clip_norm = 0.5};
  Optimiser pushes(model.parameters, Method::adam(), options), captures(replayed.parameters, Method::adam(), options);
  const auto samples = model.draw_samples(3);
  // The first step makes the states.
  train(model, pushes, samples);
  train(replayed, captures, samples);
  const Graph step = replayed.engine.capture([&] { captures.step(3); });
  for (int i = 0; i < 3; ++i) {
    pushes.step(3);  // along the same gradients
    step.launch();
  }
  EXPECT_EQ(replayed.values(), model.values());
  EXPECT_EQ(captures.progress().steps, 4u);
  EXPECT_NEAR(captures.rate(), 0.1 / 16, 1e-12);
}

/// That a restored optimiser goes on with the same bits is shown with checkpoints.
TEST(Optimiser, NamesItsTensors) {
  RowsModel model;
  Optimiser optimiser(model.parameters, Method::adam());
  train(model, optimiser, model.draw_samples(3));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : optimiser.tensors()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"adam.0/matrix", "adam.1/matrix", "adam.0/table", "adam.1/table",
                                             "adam.steps/table"}));
  EXPECT_THROW(optimiser.restore({}, {"adam.2/matrix"}), MisuseError);
  EXPECT_THROW(optimiser.restore({}, {"adam.0/matrices"}), MisuseError);
}

TEST(Optimiser, RefusesOptionsOutOfRange) {
  RowsModel model;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const OptimiserOptions& wrong :
       {OptimiserOptions{.penalty = -1}, OptimiserOptions{.decay = nan}, OptimiserOptions{.clip_value = 0},
        OptimiserOptions{.clip_norm = nan}, OptimiserOptions{.accumulate = 0}}) {
    EXPECT_THROW(Optimiser(model.parameters, Method::sgd(), wrong), MisuseError);
  }
  EXPECT_THROW(Method::adam({.first = 1}), MisuseError);
  EXPECT_THROW(Method::momentum({.momentum = -0.1}), MisuseError);
  EXPECT_THROW(Method::adagrad({.initial = -1}), MisuseError);
  EXPECT_THROW(Optimiser(model.parameters, {.name = "none", .step = nullptr}), MisuseError);
  Optimiser optimiser(model.parameters, Method::sgd());
  EXPECT_THROW(optimiser.step(0), MisuseError);
  EXPECT_THROW(optimiser.scale_rate(nan), MisuseError);
  EXPECT_THROW(optimiser.set(model.matrix, {.rate_factor = -1}), MisuseError);
}

TEST(Optimiser, RefusesNumbersThatNoFloatHolds) {
  RowsModel model;
  const auto made = [&](const OptimiserOptions& options) {
    return error_of<MisuseError>([&] { Optimiser(model.parameters, Method::sgd(), options); });
  };
  const std::string in_range = "; expected a number, 0 or more, that a float holds";
  const std::string limit = "; expected more than 0, a number that a float holds or infinity";
  EXPECT_EQ(made({.penalty = 1e39}), "optimiser: penalty 1e+39" + in_range);
  EXPECT_EQ(made({.decay = 1e300}), "optimiser: decay 1e+300" + in_range);
  EXPECT_EQ(made({.clip_norm = 1e-50}), "optimiser: clip_norm 1e-50" + limit);
  EXPECT_EQ(made({.clip_norm = 1e39}), "optimiser: clip_norm 1e+39" + limit);
  EXPECT_EQ(made({.clip_value = 1e-50}), "optimiser: clip_value 1e-50" + limit);
  for (const double wrong : {1e39, 1e-50, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(Method::adam({.epsilon = wrong}), MisuseError);
    EXPECT_THROW(Method::rmsprop({.epsilon = wrong}), MisuseError);
    EXPECT_THROW(Method::adagrad({.epsilon = wrong}), MisuseError);
  }
  EXPECT_THROW(Method::adagrad({.initial = 1e39}), MisuseError);
  Optimiser optimiser(model.parameters, Method::sgd(), {.rate = 1e20, .penalty = 1e20, .decay = 1e20});
  EXPECT_THROW(optimiser.scale_rate(1e39), MisuseError);
  EXPECT_THROW(optimiser.set(model.matrix, {.rate_factor = 1e300}), MisuseError);
  EXPECT_EQ(error_of<MisuseError>([&] { optimiser.set(model.matrix, {.penalty_factor = 1e30}); }),
            "optimiser: penalty times penalty_factor: 1e+50; expected a number that a float holds");
  EXPECT_THROW(optimiser.set(model.matrix, {.decay_factor = 1e30}), MisuseError);
  // What only a step can know fails the step.
  optimiser.set(model.matrix, {.rate_factor = 1e30});
  train(model, optimiser, model.draw_samples(2));
  expect_error<OpError>([&] { model.values(); }, "learning rate of 1e+50");
}

}  // namespace
}  // namespace windrow::testing
