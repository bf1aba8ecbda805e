// Two devices fit one model: each computes the gradient of its samples, device 0 adds the gradients up and takes the
// step, and both use the new weights. The program says where it uses each value; Windrow copies what is not there yet,
// by ops that overlap with others. docs/ops.md tells more.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "windrow/comm/local.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/placed_tensor.h"
#include "windrow/ops/random.h"

namespace op = windrow::op;

constexpr std::size_t devices = 2, samples = 64, width = 8, steps = 100;

int main() {
  windrow::Engine engine;
  const std::vector<windrow::Device> on = windrow::host_devices(engine, devices);
  std::vector<windrow::PlacedTensor> x, y, gradient;
  const windrow::PlacedTensor truth(on[0], width, 1, "truth"), w(on[0], width, 1, "w"), sum(on[0], width, 1, "sum");
  windrow::Draw(1).uniform(truth.overwrite_on(on[0]), -1, 1);
  w.set(std::vector<float>(width, 0));
  for (std::size_t d = 0; d < devices; ++d) {
    x.push_back({on[d], samples, width, "x"});
    y.push_back({on[d], samples, 1, "y"});
    gradient.push_back({on[d], width, 1, "gradient"});
    windrow::Draw(2, d).uniform(x[d].overwrite_on(on[d]), -1, 1);
    apply(on[d], op::matmul, {.in = {x[d].on(on[d]), truth.on(on[d])}}, y[d].overwrite_on(on[d]));
  }
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t d = 0; d < devices; ++d) {  // x' (x w - y)
      const windrow::Tensor guess = apply(on[d], op::matmul, {.in = {x[d].on(on[d]), w.on(on[d])}});
      const windrow::Tensor error = apply(on[d], op::sub, {.in = {guess, y[d].on(on[d])}});
      apply(on[d], op::matmul_tn, {.in = {x[d].on(on[d]), error}}, gradient[d].overwrite_on(on[d]));
    }
    apply(on[0], op::add, {.in = {gradient[0].on(on[0]), gradient[1].on(on[0])}}, sum.overwrite_on(on[0]));
    apply(on[0], op::scale, {.in = {sum.on(on[0])}, .attributes = op::scaled_by(-0.02), .write = windrow::Write::add},
          w.on(on[0]));
  }
  const std::vector<float> expected = truth.get(), found = w.get();
  float worst = 0;
  for (std::size_t i = 0; i < width; ++i) worst = std::max(worst, std::abs(found[i] - expected[i]));
  std::printf("the weights are right within %.0e after %zu steps and %zu copies\n", worst < 1e-3f ? 1e-3 : worst, steps,
              std::size_t{w.copies() + gradient[1].copies()});
}
