// Two devices train one model: each computes gradients of its samples, collectives add the gradients up, and both take
// the same step. All of this is ops, so that the engine overlaps it.
#include <cstdio>
#include <thread>

#include "windrow/batching/runner.h"
#include "windrow/comm/local.h"
#include "windrow/training/data_parallel.h"
#include "windrow/training/optimiser.h"

using windrow::Expr;

/// What each device has: a line a * x + b, whose squared distance from y is the loss.
struct Replica {
  explicit Replica(const windrow::Device& on) : device(on), parameters(on, 1) {}

  windrow::Device device;
  windrow::Parameters parameters;
  windrow::Parameter a = parameters.add("a", 1, 1, windrow::Initial::uniform(-1, 1));
  windrow::Parameter b = parameters.add("b", 1, 1, windrow::Initial::zeros());
  windrow::VertexFunction line{"line", {.arity = 0}, [this](windrow::Vertex& v) {
                                 const Expr y = matmul(v.pull("x", 1), a) + b;
                                 v.loss(squared_distance(y, v.pull("y", 1)));
                               }};
};

void train(const windrow::Communicator& communicator) {
  Replica replica(communicator.device());
  windrow::Runner runner(replica.device, replica.line, replica.parameters);
  windrow::Optimiser optimiser(replica.parameters, windrow::Method::momentum(), {.rate = 0.05});
  windrow::DataParallel parallel(communicator, replica.parameters);
  // Points of y = 3 x - 2; each device has every second one.
  windrow::GraphData data{.child_begin = {0}};
  for (int i = communicator.rank(); i < 16; i += communicator.size()) {
    const float x = static_cast<float>(i) / 8 - 1;
    data.values["x"].push_back(x);
    data.values["y"].push_back(3 * x - 2);
    data.child_begin.push_back(0);
  }
  const windrow::InputGraph graph(replica.line, data);
  const std::vector<const windrow::InputGraph*> graphs = {&graph};
  for (int step = 0; step < 200; ++step) {
    runner.differentiate(graphs);
    optimiser.step(parallel.combine(data.values["x"].size()));
  }
  const float a = replica.parameters.value(replica.a).get()[0], b = replica.parameters.value(replica.b).get()[0];
  if (communicator.rank() == 0) std::printf("y = %.2f x + %.2f\n", a, b);
}

int main() {
  windrow::Engine engine;
  const windrow::LocalGroup group(windrow::host_devices(engine, 2));
  std::thread second([&] { train(group[1]); });
  train(group[0]);
  second.join();
}
