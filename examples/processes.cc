// Processes train one model on different samples: gradients come from a tape, and MPI adds them up.
//
//   c++ -std=c++20 -O2 processes.cc -o processes $(pkg-config --cflags --libs windrow-training)
//   mpirun -n 2 ./processes   # or ./processes, alone
#include <bit>
#include <cstdio>
#include <random>

#include "windrow/comm/mpi.h"
#include "windrow/ops/operators.h"
#include "windrow/ops/tape.h"
#include "windrow/training/data_parallel.h"
#include "windrow/training/optimiser.h"

constexpr int samples = 64, inputs = 4;

int main() {
  windrow::Engine engine;
  const windrow::Device host = windrow::host_device(engine);
  windrow::MpiWorld world;  // starts MPI, before everything that uses its groups
  const windrow::Communicator all = world.group(host);

  windrow::Parameters parameters(host, 1);
  const windrow::Parameter w = parameters.add_product("w", inputs, 1);
  windrow::Optimiser optimiser(parameters, windrow::Method::adam(), {.rate = 0.05});
  windrow::DataParallel parallel(all, parameters);  // all begin with the parameters of rank 0

  // The samples of this process, y = x_0 - x_1 + x_2 - x_3.
  std::mt19937 random(static_cast<unsigned>(all.rank()));
  std::vector<float> xs, ys(samples);
  for (int i = 0; i < samples * inputs; ++i) {
    xs.push_back(static_cast<float>(random() % 1000) / 500 - 1);
    ys[static_cast<std::size_t>(i / inputs)] += i % 2 == 0 ? xs.back() : -xs.back();
  }
  const windrow::Tensor x(host, samples, inputs), y(host, samples, 1);
  x.set(xs);
  y.set(ys);

  for (int step = 0; step <= 200; ++step) {
    windrow::Tape tape(host);
    const windrow::Tensor& weights = parameters.value(w);
    tape.watch(weights);
    const windrow::Tensor guess = tape.apply(windrow::op::matmul, {.in = {x, weights}});
    const windrow::Tensor loss = tape.apply(windrow::op::squared_distance, {.in = {guess, y}});
    tape.backward(loss);  // of the sum of all rows
    parameters.begin_minibatch();
    parameters.add_gradient(w, *tape.gradient(weights));
    optimiser.step(parallel.combine(samples));  // along the gradient of all processes' samples
  }

  std::vector<std::int64_t> bits;  // the same in all processes
  for (const float weight : parameters.value(w).get()) bits.push_back(std::bit_cast<std::int32_t>(weight));
  const std::vector<std::int64_t> of_all = all.exchange(bits);
  for (std::size_t i = 0; i < of_all.size(); ++i) {
    if (of_all[i] != bits[i % bits.size()]) return 1;
  }
  if (all.rank() != 0) return 0;
  const float first = parameters.value(w).get()[0];
  std::printf("w[0] = %.2f, the same in %d processes\n", first, all.size());
}
