// Two devices train one model: each computes gradients of its samples, collectives add the gradients up, and both take
// the same step. All of this is ops, so that the engine overlaps it. docs/comm.md shows a timeline of this program.
#include <cmath>
#include <cstdio>
#include <thread>

#include "windrow/batching/runner.h"
#include "windrow/comm/local.h"
#include "windrow/training/data_parallel.h"
#include "windrow/training/optimiser.h"

constexpr int layers = 3, width = 256, samples = 64, length = 8;

/// A chain of vertices, each with the one before it as its child; x is a sine, and y the next x.
windrow::GraphData sine_wave(int number) {
  const auto value = [&](int t) { return std::sin(static_cast<float>(number) + 0.5f * static_cast<float>(t)); };
  windrow::GraphData wave;
  for (int t = 0; t < length; ++t) {
    wave.values["x"].push_back(value(t));
    wave.values["y"].push_back(value(t + 1));
    if (t > 0) wave.children.push_back(t - 1);
    wave.child_begin.push_back(t);
  }
  return wave;
}

void train(const windrow::Communicator& all) {
  windrow::Parameters parameters(all.device(), 1);
  const windrow::VertexFunction network("network", {.arity = 1}, [&](windrow::Vertex& v) {
    windrow::Expr x = v.pull("x", 1);
    for (int i = 0; i < layers; ++i) {
      const std::string layer = std::to_string(i);
      const windrow::State state = v.state("state " + layer, width);
      const windrow::Parameter up = parameters.add_product("up " + layer, i == 0 ? 1 : width, width);
      const windrow::Parameter along = parameters.add_product("along " + layer, width, width);
      v.scatter(state, x = tanh(matmul(x, up) + matmul(v.gather(0, state), along)));
    }
    v.loss(squared_distance(matmul(x, parameters.add_product("out", width, 1)), v.pull("y", 1)));
  });
  windrow::Runner runner(all.device(), network, parameters);
  windrow::Optimiser optimiser(parameters, windrow::Method::adam(), {.rate = 0.001});
  windrow::DataParallel parallel(all, parameters, {.bucket_bytes = 1 << 18});
  std::vector<windrow::InputGraph> waves;  // every second one
  for (int i = all.rank(); i < samples; i += all.size()) waves.emplace_back(network, sine_wave(i));
  for (int step = 0; step <= 40; ++step) {
    const windrow::Minibatch minibatch = runner.differentiate(waves);
    optimiser.step(parallel.combine(waves.size()));
    if (step % 20 != 0 || all.rank() != 0) continue;
    std::printf("step %d: loss %.3f\n", step, minibatch.loss() / static_cast<double>(waves.size() * length));
  }
}

int main() {
  windrow::Engine engine;
  const windrow::LocalGroup group(windrow::host_devices(engine, 2));
  const std::jthread second([&] { train(group[1]); });
  train(group[0]);
}
