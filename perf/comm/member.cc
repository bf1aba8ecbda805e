// A process of a group: the cost of its calls, and its steps beside simulated ones.
//
// The devices of these steps do not compute, so the processes of one machine do not share what the simulation gives to
// each.
#include <algorithm>
#include <cmath>
#include <memory>

#include "batching/interleaved_runs.h"
#include "comm/comm.h"
#include "comm/timed_lane.h"
#include "program.h"
#include "windrow/batching/parameters.h"
#include "windrow/comm/mpi.h"
#include "windrow/training/internal/simulation.h"

namespace windrow::perf {
namespace {

using namespace std::chrono_literals;
using Time = VirtualClock::Time;

void measure_own_calls(MpiWorld& world) {
  Engine engine({.workers = 1});
  const Communicator group = world.group(host_device(engine));
  std::vector<Tensor> tensors;
  for (int i = 0; i < calls_together; ++i) {
    tensors.push_back(Tensor(group.device(), 1, call_bytes / sizeof(float)));
    tensors.back().set(std::vector<float>(call_bytes / sizeof(float), 0.0f));
    group.all_reduce(tensors.back());
  }
  group.barrier();
  measure_calls(
      world.rank(),
      [&] {
        group.all_reduce(tensors[0]);
        engine.wait(tensors[0].var());
      },
      [&] {
        for (const Tensor& tensor : tensors) group.all_reduce(tensor);
        engine.wait_all();
      });
}

constexpr std::size_t layer_bytes = 2 << 20;
constexpr int layers = 12, steps = 12, rounds = 9;

/// The network as it is: from the sums of a step alone, and from calls of one part. As in a step, an op of the device
/// precedes and follows each, since what hands over a tensor takes its time from the processes that move data.
NetworkModel measured_network(MpiWorld& world, std::size_t part_bytes) {
  Engine engine({.workers = 1, .on_thread_start = ask_for_short_slices});
  const auto lane = std::make_shared<TimedLane>();
  const LaneId on_lane = engine.add_lane(lane);
  const auto push = [&](OpName name, const Access& access) {
    engine.push([&lane = *lane] { lane.issue(0ns); }, {access}, {.name = name, .lane = on_lane});
  };
  const Communicator group = world.group(host_device(engine));
  const auto nanoseconds = [&](int calls, std::size_t bytes, std::size_t part) {
    std::vector<Tensor> tensors;
    for (int i = 0; i < calls; ++i) {
      tensors.push_back(Tensor(group.device(), 1, static_cast<Index>(bytes / 4)));
      tensors.back().set(std::vector<float>(bytes / 4, 0.0f));
    }
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) {
      group.barrier();
      const double began = clock_seconds();
      int priority = 0;
      for (const Tensor& tensor : tensors) {
        push("backward", mutate(tensor.var()));
        group.all_reduce(tensor, Combine::sum, {.priority = ++priority, .part_bytes = part});
        push("update", read(tensor.var()));
      }
      engine.wait_all();
      times.push_back((clock_seconds() - began) * 1e9);
    }
    return median_of(times);
  };
  constexpr std::size_t small = 64;
  constexpr int many = 48;
  const double one_small = nanoseconds(1, small, small);
  const double gaps = std::max((nanoseconds(many, small, small) - one_small) / (many - 1), 0.0);
  const double latency = std::max(one_small - gaps, 0.0);
  const double parts = layers * std::ceil(static_cast<double>(layer_bytes) / static_cast<double>(part_bytes));
  const double all = nanoseconds(layers, layer_bytes, part_bytes);
  const double of_bytes = std::max(all - latency - parts * gaps, 1.0);
  const double n = world.size(), messages = 2 * (n - 1);
  return {.bandwidth = messages / n * layers * static_cast<double>(layer_bytes) / of_bytes * 1e9,
          .latency = Time(std::llround(latency / messages)),
          .gap = Time(std::llround(gaps / messages))};
}

double real_step(MpiWorld& world, const SimulationOptions& options) {
  Engine engine({.workers = 1, .on_thread_start = ask_for_short_slices});
  const auto lane = std::make_shared<TimedLane>();
  const LaneId on_lane = engine.add_lane(lane);
  const Device device = host_device(engine);
  Parameters parameters(device, 1);
  std::vector<Tensor> gradients;
  std::vector<Var> states;
  const Var descent = engine.new_var("gradient of a state");
  for (const SimulatedLayer& layer : options.layers) {
    const Index elements = static_cast<Index>(layer.bytes / 4);
    parameters.add("layer " + std::to_string(states.size()), 1, elements, Initial::zeros());
    gradients.push_back(Tensor(device, 1, elements, "gradient"));
    gradients.back().set(std::vector<float>(static_cast<std::size_t>(elements), 0.0f));
    states.push_back(engine.new_var("state"));
  }
  DataParallel parallel(world.group(device), parameters, options.parallel);
  const auto push = [&](OpName name, Time takes, const std::vector<Access>& accesses) {
    engine.push([&lane = *lane, takes] { lane.issue(takes); }, accesses, {.name = name, .lane = on_lane});
  };
  parallel.communicator().barrier();
  std::vector<double> ends(static_cast<std::size_t>(options.steps));
  for (double& end : ends) {
    for (std::size_t i = 0; i < states.size(); ++i) {
      std::vector<Access> accesses = {read(parameters.value(parameters[i]).var()), overwrite(states[i])};
      if (i > 0) accesses.push_back(read(states[i - 1]));
      push("forward", options.layers[i].forward, accesses);
    }
    for (std::size_t i = states.size(); i-- > 0;) {
      push("backward", options.layers[i].backward,
           {read(parameters.value(parameters[i]).var()), read(states[i]), mutate(descent), mutate(gradients[i].var())});
      parameters.set_gradient(parameters[i], gradients[i]);
    }
    engine.push([&end] { end = clock_seconds(); }, {read(gradients.front().var())}, {.name = "end of backward"});
    parallel.combine(1);
    for (std::size_t i = 0; i < states.size(); ++i) {
      push("update", options.layers[i].update,
           {read(gradients[i].var()), mutate(parameters.value(parameters[i]).var())});
    }
  }
  parallel.communicator().barrier();
  std::vector<double> times;  // from one end of the backward pass to the next
  for (std::size_t i = 1; i < ends.size(); ++i) times.push_back(ends[i] - ends[i - 1]);
  return median_of(times);
}

/// The network's speed changes with what else the machine does, so it is measured before and after the steps.
NetworkModel mean_of(const NetworkModel& a, const NetworkModel& b) {
  return {.bandwidth = 2 / (1 / a.bandwidth + 1 / b.bandwidth),
          .latency = (a.latency + b.latency) / 2,
          .gap = (a.gap + b.gap) / 2};
}

void measure_steps(MpiWorld& world, const std::string& name, Time forward) {
  const std::vector<SimulatedLayer> all(
      layers, {.bytes = layer_bytes, .forward = forward, .backward = 2 * forward, .update = 100us});
  SimulationOptions options{.layers = all, .devices = world.size(), .steps = steps};
  std::vector<double> real, simulated, ratios, hidden, bandwidths;
  NetworkModel before = measured_network(world, options.parallel.part_bytes);
  for (int i = 0; i < rounds; ++i) {
    real.push_back(real_step(world, options));
    const NetworkModel after = measured_network(world, options.parallel.part_bytes);
    options.network = mean_of(before, after);
    before = after;
    if (world.rank() > 0) continue;
    const SimulatedStep step = simulate(options);
    simulated.push_back(static_cast<double>(step.step.count()) / 1e9);
    ratios.push_back(real.back() / simulated.back());
    hidden.push_back(step.hidden());
    bandwidths.push_back(options.network.bandwidth);
  }
  if (world.rank() > 0) return;
  const auto print = [&](const char* what, const std::vector<double>& values, double unit) {
    program::print("%s_%s %.4f\n", name.c_str(), what, median_of(values) / unit);
  };
  print("real_ms", real, 1e-3);
  print("simulated_ms", simulated, 1e-3);
  print("ratio", ratios, 1);
  print("hidden", hidden, 1);
  print("gb_per_s", bandwidths, 1e9);
}

}  // namespace

void run_member() {
  MpiWorld world;
  measure_own_calls(world);
  measure_steps(world, "computation", 3ms);
  measure_steps(world, "network", 300us);
}

}  // namespace windrow::perf
