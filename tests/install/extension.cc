// A library that another program opens, such as an extension of Python, with the static libraries inside it.
#include <windrow/ops/apply.h>
#include <windrow/ops/operators.h>

extern "C" float product(float a, float b) {
  windrow::Engine engine;
  const windrow::Device host = windrow::host_device(engine);
  windrow::Tensor x(host, 1, 1, "x"), y(host, 1, 1, "y");
  x.set({a});
  y.set({b});
  return apply(host, windrow::op::matmul, {.in = {x, y}}).get()[0];
}
