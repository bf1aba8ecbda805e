// Operators on tensors: each application is an op of the engine.
#include <cstdio>

#include "windrow/ops/apply.h"

int main() {
  windrow::Engine engine;
  windrow::Device host = windrow::host_device(engine);
  windrow::Tensor x(host, 2, 3, "x"), w(host, 3, 1, "w");
  x.set({1, 2, 3, 4, 5, 6});
  w.set({1, 0, -1});
  windrow::Tensor y = apply(host, windrow::op::matmul, {.in = {x, w}});
  windrow::Tensor z = apply(host, windrow::op::tanh, {.in = {y}});
  for (float value : z.get()) std::printf("%.3f\n", value);  // waits until z is computed
}
