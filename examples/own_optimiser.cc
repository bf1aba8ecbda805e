// An optimiser of your own: Lion (Chen et al. 2023), whose step has the sign of an average of gradients.
//
// A method names an operator that updates a parameter, and a state of the same shape. The optimiser does the rest:
// learning rates, clipping, accumulation, and states in checkpoints.
#include <cmath>
#include <iostream>

#include "windrow/batching/runner.h"
#include "windrow/ops/apply.h"
#include "windrow/training/optimiser.h"

namespace {

using windrow::Index;

/// The gradient, then the numbers of the step.
windrow::Type infer_lion(const windrow::Operator&, const windrow::Signature& signature) { return signature.in[0]; }

constinit const windrow::Operator lion_step{.name = "lion_step",
                                            .inputs = 2,
                                            .infer = infer_lion,
                                            .locality = windrow::Locality::rowwise,
                                            .whole = 0b10,  // each row depends on all numbers
                                            .updates = true,
                                            .states = 1};

void lion_kernel(const windrow::KernelCall<float>& call) {
  const auto numbers = windrow::StepNumbers::of(call.in[1].data);
  if (numbers.scale == 0) return;  // a step that is skipped
  for (Index r = 0; r < call.out.rows; ++r) {
    for (Index c = 0; c < call.out.width; ++c) {
      float &value = call.out.row(r)[c], &average = call.states[0].row(r)[c];
      const float gradient = numbers.scale * call.in[0].row(r)[c];
      const float direction = std::copysign(1.0f, numbers.first * average + (1 - numbers.first) * gradient);
      value -= numbers.rate * (direction + numbers.decay * value);
      average = numbers.second * average + (1 - numbers.second) * gradient;
    }
  }
}

const windrow::Method lion = {
    .name = "lion", .step = &lion_step, .coefficients = [](std::uint64_t, windrow::StepNumbers& numbers) {
      numbers.first = 0.9f;
      numbers.second = 0.99f;
    }};

}  // namespace

int main() {
  windrow::Engine engine;
  windrow::Device host = windrow::host_device(engine);
  host.kernels.add(lion_step, lion_kernel);

  windrow::Parameters parameters(host, 1);
  const windrow::Parameter w = parameters.add_product("w", 2, 1);
  const windrow::VertexFunction line(
      "line", {}, [&](windrow::Vertex& v) { v.loss(squared_distance(matmul(v.pull("x", 2), w), v.pull("y", 1))); });
  windrow::GraphData data{.child_begin = {0, 0, 0, 0}};
  data.values = {{"x", {1, 0, 0, 1, 1, 1}}, {"y", {2, -1, 1}}};  // y = 2 a - b
  const windrow::InputGraph graph(line, data);
  windrow::Runner runner(host, line, parameters);
  windrow::Optimiser optimiser(parameters, lion, {.rate = windrow::LearningRate::cosine(0.1, 200)});
  for (int i = 0; i < 200; ++i) {
    runner.differentiate(std::vector{&graph});
    optimiser.step(3);
  }
  const std::vector<float> found = parameters.value(w).get();
  std::cout << "w = " << found[0] << ", " << found[1] << "\n";
  return std::abs(found[0] - 2) < 0.01 && std::abs(found[1] + 1) < 0.01 ? 0 : 1;
}
