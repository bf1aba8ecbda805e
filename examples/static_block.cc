// A recurrent network over sequences of any length, whose cell is recorded once: it learns to add numbers.
#include "windrow/ops/static_block.h"

#include <cstdio>

#include "windrow/ops/random.h"

using windrow::Tensor;
namespace op = windrow::op;

int main() {
  constexpr windrow::Index sequences = 32, width = 16;
  windrow::Engine engine;
  const windrow::Device host = windrow::host_device(engine);
  windrow::Generator draws(engine, 1);
  const auto drawn = [&](windrow::Index rows, windrow::Index columns, float most) {
    const Tensor tensor(host, rows, columns);
    draws.uniform(tensor, -most, most);
    return tensor;
  };
  const Tensor from_number = drawn(1, width, 0.5f), from_state = drawn(width, width, 0.2f), out = drawn(width, 1, 0.5f);
  const Tensor start(host, sequences, width, "start");
  start.set(std::vector<float>(sequences * width, 0));

  windrow::StaticBlock cell(host, {from_number, from_state},
                            [&](windrow::Tape& tape, const windrow::StaticInputs& of) -> std::vector<Tensor> {
                              const Tensor number = tape.apply(op::matmul, {.in = {of.in[0], from_number}});
                              const Tensor state = tape.apply(op::matmul, {.in = {of.in[1], from_state}});
                              return {tape.apply(op::tanh, {.in = {tape.apply(op::add, {.in = {number, state}})}})};
                            });
  for (int step = 0; step <= 300; ++step) {
    windrow::Tape tape(host);
    for (const Tensor& weights : {from_number, from_state, out}) tape.watch(weights);
    const Tensor sum(host, sequences, 1, "sum");
    sum.set(std::vector<float>(sequences, 0));
    Tensor state = start;
    for (int i = 0; i < 2 + step % 4; ++i) {  // the length differs from step to step
      const Tensor number = drawn(sequences, 1, 0.5f);
      apply(host, op::concat, {.in = {number}, .write = windrow::Write::add}, sum);
      state = cell(tape, {.in = {number, state}})[0];
    }
    const Tensor answer = tape.apply(op::matmul, {.in = {state, out}});
    const Tensor losses = tape.apply(op::squared_distance, {.in = {answer, sum}});
    tape.backward(losses);
    for (const Tensor& weights : {from_number, from_state, out}) {
      apply(host, op::sgd,
            {.in = {*tape.gradient(weights)}, .attributes = op::at_rate(0.003), .write = windrow::Write::add}, weights);
    }
    if (step % 100 > 0) continue;
    float mean = 0;
    for (const float loss : losses.get()) mean += loss / sequences;
    std::printf("step %d: loss %.3f\n", step, mean);
  }
  std::printf("%d recording, %d replays\n", static_cast<int>(cell.forward().recorded),
              static_cast<int>(cell.forward().replayed));
}
