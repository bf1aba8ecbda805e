// Replicas of parameters, and training with them on several devices in one call a step.
#include "windrow/training/replicas.h"

#include "tests/batching/support.h"

namespace windrow::testing {
namespace {

constexpr Index row_width = 5;

/// Chains of up to nine vertices, with dropout.
struct Chains {
  explicit Chains(const Device& device) : parameters(device, 1) {}

  std::vector<GraphData> data() const {
    std::vector<GraphData> all;
    for (std::int32_t i = 0; i < 24; ++i) {
      const std::int32_t length = 1 + i * 7 % 9;
      GraphData chain = chain_of(length);
      for (std::int32_t v = 0; v < length; ++v) chain.indices["word"].push_back((i + v) % 6);
      all.push_back(std::move(chain));
    }
    return all;
  }

  Parameters parameters;
  Parameter table = parameters.add("table", 6, row_width, Initial::uniform(-1, 1));
  Parameter along = parameters.add_product("along", row_width, row_width);
  VertexFunction function{"chain", {.arity = 1}, [this](Vertex& v) {
                            const State s = v.state("s", row_width);
                            const Expr own =
                                tanh(embedding(table, v.pull_index("word")) + matmul(v.gather(0, s), along));
                            v.scatter(s, own);
                            v.loss(squared_distance(dropout(own, {.rate = 0.25}), v.constant(row_width, 0.5f)));
                          }};
};

std::vector<Floats> values_of(const Parameters& parameters) {
  std::vector<Floats> all;
  for (std::size_t i = 0; i < parameters.size(); ++i) all.push_back(parameters.value(parameters[i]).get());
  return all;
}

const Method adam = Method::adam();
const OptimiserOptions fast{.rate = 0.05, .clip_norm = 20};

TEST(Replicas, TakeTheStepsOfOneDevice) {
  constexpr int steps = 4;
  Engine engine({.workers = 2});
  Chains alone(host_device(engine));
  Runner runner(alone.parameters.device(), alone.function, alone.parameters);
  Optimiser optimiser(alone.parameters, adam, fast);
  const Graphs graphs(alone.function, alone.data());
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    losses.push_back(runner.differentiate(graphs.pointers).loss());
    optimiser.step(graphs.graphs.size());
  }
  const std::vector<Floats> expected = values_of(alone.parameters);
  for (const bool sharded : {false, true}) {
    const std::vector<Device> devices = host_devices(engine, 3);
    Chains model(devices[0]);
    Parameters second(devices[1], model.parameters), third(devices[2], model.parameters);
    Optimiser first_steps(model.parameters, adam, fast), second_steps(second, adam, fast),
        third_steps(third, adam, fast);
    Replicas replicas(model.function, {{model.parameters, first_steps}, {second, second_steps}, {third, third_steps}},
                      {.sharded = sharded});
    const Graphs own(model.function, model.data());
    for (int step = 0; step < steps; ++step) {
      double loss = 0;
      for (const Minibatch& part : replicas.step(own.pointers)) loss += part.loss();
      EXPECT_NEAR(loss, losses[static_cast<std::size_t>(step)], 1e-3);
    }
    const std::vector<Floats> values = values_of(model.parameters);
    EXPECT_EQ(values_of(second), values);
    EXPECT_EQ(values_of(third), values);
    for (std::size_t p = 0; p < values.size(); ++p) {
      for (std::size_t i = 0; i < values[p].size(); ++i) EXPECT_NEAR(values[p][i], expected[p][i], 1e-4);
    }
  }
}

TEST(Replicas, GoOnAfterAStepThatWasRefused) {
  Engine engine({.workers = 2});
  const std::vector<Device> devices = host_devices(engine, 2);
  Chains model(devices[0]), other(devices[0]);
  Parameters second(devices[1], model.parameters);
  Optimiser steps(model.parameters, adam, fast), second_steps(second, adam, fast);
  Replicas replicas(model.function, {{model.parameters, steps}, {second, second_steps}});
  const Graphs own(model.function, model.data()), foreign(other.function, {other.data().front()});
  const std::vector<Floats> before = values_of(model.parameters);
  std::vector<const InputGraph*> mixed = own.pointers;
  mixed[3] = foreign.pointers.front();
  EXPECT_THROW(replicas.step(mixed), MisuseError);
  EXPECT_EQ(error_of<MisuseError>([&] { replicas.step(std::vector<const InputGraph*>()); }),
            "Replicas::step: no graphs; expected at least 1");
  EXPECT_EQ(values_of(model.parameters), before);
  replicas.step(own.pointers);
  EXPECT_NE(values_of(model.parameters), before);
  EXPECT_EQ(values_of(model.parameters), values_of(second));
  EXPECT_EQ(model.parameters.minibatches(), second.minibatches());
  EXPECT_EQ(error_of<MisuseError>([&] { Replicas(model.function, {}); }),
            "Replicas: no replicas; expected one or more");
}

TEST(Replicas, OfParametersServeTheFunctionUntilParametersAreAdded) {
  Engine engine({.workers = 1});
  Chains model(host_device(engine));
  model.parameters.freeze(model.along);
  Parameters replica(host_device(engine), model.parameters);
  EXPECT_EQ(values_of(replica), values_of(model.parameters));
  EXPECT_EQ(replica.name(model.table), "table");
  EXPECT_TRUE(replica.frozen(model.along));
  EXPECT_FALSE(replica.frozen(model.table));
  const Graphs graphs(model.function, model.data());
  Runner runner(model.parameters.device(), model.function, model.parameters);
  Runner of_replica(replica.device(), model.function, replica);
  EXPECT_EQ(of_replica.differentiate(graphs.pointers).loss(), runner.differentiate(graphs.pointers).loss());
  replica.sgd(0.1);
  EXPECT_NE(replica.value(model.table).get(), model.parameters.value(model.table).get());
  const Parameter late = model.parameters.add_product("late", row_width, 1);
  expect_error<MisuseError>([&] { replica.value(late); }, "'late' of another set");
  expect_error<MisuseError>([&] { ParameterSets({model.parameters, replica}); }, "given twice");
}

}  // namespace
}  // namespace windrow::testing
