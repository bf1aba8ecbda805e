// A training step that is recorded once and replayed: a network learns exclusive or.
#include <cstdio>

#include "windrow/ops/random.h"
#include "windrow/ops/static.h"
#include "windrow/ops/tape.h"

using windrow::Tensor;
namespace op = windrow::op;

int main() {
  windrow::Engine engine;
  const windrow::Device host = windrow::host_device(engine);
  const Tensor x(host, 4, 2, "x"), wanted(host, 4, 1, "wanted");
  x.set({0, 0, 0, 1, 1, 0, 1, 1});
  wanted.set({0, 1, 1, 0});
  const Tensor first(host, 2, 8, "first"), bias(host, 1, 8, "bias"), second(host, 8, 1, "second");
  windrow::Generator draws(engine, 1);
  for (const Tensor& weights : {first, bias, second}) draws.uniform(weights, -1, 1);

  windrow::Static step(host, [&](const windrow::StaticInputs& batch) -> std::vector<Tensor> {
    windrow::Tape tape(host);
    for (const Tensor& weights : {first, bias, second}) tape.watch(weights);
    const Tensor sum = tape.apply(op::add_bias, {.in = {tape.apply(op::matmul, {.in = {batch.in[0], first}}), bias}});
    const Tensor y = tape.apply(op::matmul, {.in = {tape.apply(op::tanh, {.in = {sum}}), second}});
    const Tensor losses = tape.apply(op::squared_distance, {.in = {y, batch.in[1]}});
    tape.backward(losses);
    for (const Tensor& weights : {first, bias, second}) {
      apply(host, op::sgd,
            {.in = {*tape.gradient(weights)}, .attributes = op::at_rate(0.05), .write = windrow::Write::add}, weights);
    }
    return {y};
  });
  for (int i = 0; i < 1000; ++i) step({.in = {x, wanted}});

  for (const float value : step({.in = {x, wanted}})[0].get()) std::printf("%.1f ", value);
  const windrow::StaticStats stats = step.stats();
  std::printf("after %d replays of %zu ops\n", static_cast<int>(stats.replayed), stats.ops);
}
