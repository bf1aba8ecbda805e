// Operators on a CUDA device if one can be used, and otherwise on the host.
#include "windrow/cuda/device.h"

#include <cstdio>

#include "windrow/ops/apply.h"

int main() {
  windrow::Engine engine;
  windrow::Device device = windrow::host_device(engine);
  try {
    device = windrow::cuda::open_device(engine, 0).device;
  } catch (const windrow::Error& e) {
    std::printf("%s\n", e.what());  // such as: no NVIDIA driver was found
  }
  std::printf("on %s\n", device.name.c_str());
  windrow::Tensor x(device, 2, 3, "x"), w(device, 3, 1, "w");
  x.set({1, 2, 3, 4, 5, 6});  // copies to the device
  w.set({1, 0, -1});
  windrow::Tensor y = apply(device, windrow::op::matmul, {.in = {x, w}});
  windrow::Tensor z = apply(device, windrow::op::tanh, {.in = {y}});
  for (float value : z.get()) std::printf("%.3f\n", value);  // waits until z is computed, and copies it
}
