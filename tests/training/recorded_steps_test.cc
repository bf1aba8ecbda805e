// Optimisers in the body of a Static: replayed steps count on, and follow the schedule.
#include "tests/batching/support.h"
#include "windrow/ops/static.h"
#include "windrow/ops/tape.h"
#include "windrow/training/optimiser.h"

namespace windrow::testing {
namespace {

/// A layer of weights and a bias under cross entropy.
class RecordedLayer {
 public:
  RecordedLayer(const Device& host, const Method& method, const OptimiserOptions& options,
                const ParametersOptions& of_parameters = {})
      : host_(host), parameters(host, 3, of_parameters), optimiser(parameters, method, options) {}

  std::vector<Tensor> step(const StaticInputs& batch) {
    Tape tape(host_);
    for (const Parameter& parameter : all_) tape.watch(parameters.value(parameter));
    const Tensor product = tape.apply(op::matmul, {.in = {batch.in[0], parameters.value(all_[0])}});
    const Tensor scores = tape.apply(op::add_bias, {.in = {product, parameters.value(all_[1])}});
    const Tensor losses = tape.apply(op::softmax_cross_entropy, {.in = {scores}, .indices = batch.indices});
    tape.backward(losses);
    for (const Parameter& parameter : all_) {
      parameters.set_gradient(parameter, *tape.gradient(parameters.value(parameter)));
    }
    optimiser.step(static_cast<std::size_t>(losses.rows()));
    parameters.forget_gradients();
    return {losses};
  }

  template <class Step>
  std::vector<float> train(int steps, const Step& step) {
    const Tensor x(host_, 6, 5, "x");
    const IntTensor labels(host_, 6, 1, "labels");
    labels.set({0, 1, 2, 2, 1, 0});
    std::vector<float> seen;
    for (int i = 0; i < steps; ++i) {
      std::vector<float> values;
      for (int k = 0; k < 30; ++k) values.push_back(static_cast<float>((k * 7 + i) % 13) / 13);
      x.set(values);
      const std::vector<Tensor> losses = step(StaticInputs{.in = {x}, .indices = {labels}});
      if (i + 1 == steps) seen = losses[0].get();
    }
    for (const Parameter& parameter : all_) {
      const std::vector<float> values = parameters.value(parameter).get();
      seen.insert(seen.end(), values.begin(), values.end());
    }
    return seen;
  }

 private:
  const Device host_;

 public:
  Parameters parameters;
  Optimiser optimiser;

 private:
  const Parameter all_[2] = {parameters.add("w", 5, 3, Initial::uniform(-1, 1)),
                             parameters.add("b", 1, 3, Initial::zeros())};
};

class RecordedSteps : public EveryPolicy {};
WINDROW_EVERY_POLICY(RecordedSteps);

TEST_P(RecordedSteps, EqualFreshOnesForManySteps) {
  constexpr int steps = thread_sanitized ? 100 : 1000;
  const OptimiserOptions how{.rate = LearningRate::cosine(0.05, 700, 0.001), .decay = 0.01, .clip_norm = 0.2};
  for (const Method& method : {Method::adam(), Method::momentum()}) {
    Engine serial({.policy = Policy::serial});
    RecordedLayer fresh(host_device(serial), method, how);
    const std::vector<float> expected =
        fresh.train(steps, [&](const StaticInputs& batch) { return fresh.step(batch); });
    for (const StaticOptions::Order order : {StaticOptions::Order::parallel, StaticOptions::Order::serial}) {
      Engine engine(options());
      const Device host = host_device(engine);
      RecordedLayer layer(host, method, how);
      Static step(host, [&](const StaticInputs& batch) { return layer.step(batch); }, {.order = order});
      EXPECT_EQ(layer.train(steps, [&](const StaticInputs& batch) { return step(batch); }), expected);
      EXPECT_EQ(step.stats().recorded, 1U);
      EXPECT_EQ(layer.optimiser.progress().steps, steps);
      EXPECT_EQ(layer.optimiser.rate(), fresh.optimiser.rate());
    }
  }
}

/// The error of recording a step.
std::string error_of_step(const OptimiserOptions& options, const ParametersOptions& of_parameters) {
  Engine engine({.policy = Policy::serial});
  const Device host = host_device(engine);
  RecordedLayer layer(host, Method::sgd(), options, of_parameters);
  Static step(host, [&](const StaticInputs& batch) { return layer.step(batch); });
  const std::string error =
      error_of<MisuseError>([&] { layer.train(1, [&](const StaticInputs& batch) { return step(batch); }); });
  EXPECT_FALSE(layer.optimiser.between_steps());
  return error;
}

TEST(RecordedStep, RefusesWhatReplaysWouldNotDo) {
  EXPECT_NE(error_of_step({.accumulate = 2}, {}).find("accumulate"), std::string::npos);
  EXPECT_NE(error_of_step({}, {.non_finite = NonFinite::skip}).find("NonFinite::skip"), std::string::npos);
  Engine engine({.policy = Policy::serial});
  const Device host = host_device(engine);
  RecordedLayer collects(host, Method::sgd(), {.accumulate = 2});
  collects.train(1, [&](const StaticInputs& batch) { return collects.step(batch); });
  Static finishes(host, [&](const StaticInputs&) -> std::vector<Tensor> {
    collects.optimiser.finish();
    return {};
  });
  expect_error<MisuseError>([&] { finishes(); }, "Optimiser::finish()");
  EXPECT_TRUE(collects.optimiser.between_steps());
  Parameters parameters(host, 1);
  Static step(host, [&](const StaticInputs&) -> std::vector<Tensor> {
    return {parameters.value(parameters.add("late", 1, 1, Initial::zeros()))};
  });
  expect_error<MisuseError>([&] { step(); }, "Parameters::add()");
  EXPECT_EQ(parameters.size(), 0U);
}

}  // namespace
}  // namespace windrow::testing
