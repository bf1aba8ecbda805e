// Two devices train one model: each computes gradients of its samples, collectives add the gradients up, and both take
// the same step. All of this is ops, so that the engine overlaps it. docs/comm.md shows a timeline of this program.
#include <cmath>
#include <cstdio>
#include <thread>

#include "windrow/batching/runner.h"
#include "windrow/comm/local.h"
#include "windrow/training/data_parallel.h"
#include "windrow/training/optimiser.h"

using windrow::Expr;

constexpr int layers = 3, width = 256, samples = 64, length = 8;

/// What each device has: a recurrent network of several layers, which predicts the next value of a sequence.
struct Replica {
  explicit Replica(const windrow::Device& on) : device(on), parameters(on, 1) {}

  windrow::Parameter product(const std::string& name, int from, int to) {
    return parameters.add_product(name, from, to);
  }
  void step(windrow::Vertex& v) {
    Expr x = v.pull("x", 1);
    for (int i = 0; i < layers; ++i) {
      const std::string name = std::to_string(i);
      const windrow::State state = v.state("state " + name, width);
      const windrow::Parameter up = product("up " + name, i == 0 ? 1 : width, width);
      const windrow::Parameter along = product("along " + name, width, width);
      x = tanh(matmul(x, up) + matmul(v.gather(0, state), along));
      v.scatter(state, x);
    }
    v.loss(squared_distance(matmul(x, product("out", width, 1)), v.pull("y", 1)));
  }

  windrow::Device device;
  windrow::Parameters parameters;
  windrow::VertexFunction network{"network", {.arity = 1}, [this](windrow::Vertex& v) { step(v); }};
};

void train(const windrow::Communicator& communicator) {
  Replica replica(communicator.device());
  windrow::Runner runner(replica.device, replica.network, replica.parameters);
  windrow::Optimiser optimiser(replica.parameters, windrow::Method::adam(), {.rate = 0.001});
  windrow::DataParallel parallel(communicator, replica.parameters, {.bucket_bytes = 1 << 18});
  // Sine waves; each device has every second one.
  std::vector<windrow::InputGraph> waves;
  std::vector<const windrow::InputGraph*> graphs;
  for (int i = communicator.rank(); i < samples; i += communicator.size()) {
    windrow::GraphData data{.child_begin = {0}};
    for (int t = 0; t < length; ++t) {
      data.values["x"].push_back(std::sin(static_cast<float>(i) + 0.5f * static_cast<float>(t)));
      data.values["y"].push_back(std::sin(static_cast<float>(i) + 0.5f * static_cast<float>(t + 1)));
      if (t > 0) data.children.push_back(t - 1);
      data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
    }
    waves.emplace_back(replica.network, data);
  }
  for (const windrow::InputGraph& wave : waves) graphs.push_back(&wave);
  for (int step = 0; step <= 40; ++step) {
    const windrow::Minibatch minibatch = runner.differentiate(graphs);
    optimiser.step(parallel.combine(graphs.size()));
    if (step % 20 == 0 && communicator.rank() == 0) {
      std::printf("step %d: loss %.3f\n", step, minibatch.loss() / static_cast<double>(graphs.size() * length));
    }
  }
}

int main() {
  windrow::Engine engine;
  const windrow::LocalGroup group(windrow::host_devices(engine, 2));
  std::thread second([&] { train(group[1]); });
  train(group[0]);
  second.join();
}
