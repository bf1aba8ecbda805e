// Data-parallel steps in virtual time: how long training takes on many devices, and what limits it.
//
//   const SimulatedStep step = simulate({.layers = layers, .devices = 1024, .network = {.bandwidth = 25e9}});
//
// Only devices and the network are simulated (windrow/comm/simulated.h): ops take virtual time instead of computing.
// The engine, the buckets, parts and priorities of DataParallel, and the queue of collectives are the real ones.
// docs/scaling.md describes the model, and what it leaves out.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "windrow/comm/simulated.h"
#include "windrow/training/data_parallel.h"

namespace windrow {

/// The work of one device for a layer in each step. A value.
struct SimulatedLayer {
  std::size_t bytes = 0;  ///< of its parameters, and so of their gradient; a multiple of 4
  VirtualClock::Time forward{0}, backward{0}, update{0};
};

struct SimulationOptions {
  std::vector<SimulatedLayer> layers = {};  ///< from the input on; at least one, and one that takes time
  int devices = 1;                          ///< devices x layers x steps: at most 1,000,000
  NetworkModel network = {};                ///< bandwidth above 0, times not below 0
  DataParallelOptions parallel = {};        ///< without compression; all steps together: at most 10,000,000 parts
  /// If false, a step waits for all gradients before their sums begin, and for all sums before the updates.
  bool overlap = true;
  /// The time of each op is multiplied by a random factor from 1 - jitter to 1 + jitter. Less than 1.
  double jitter = 0;
  std::uint64_t seed = 1;
  int steps = 3;  ///< at least 2. The first one fills the pipeline and does not count
};

/// Times are means per step. A value.
struct SimulatedStep {
  using Time = VirtualClock::Time;
  Time step{0};         ///< from one end of the backward pass, of the slowest device, to the next
  Time computation{0};  ///< the same with a network that takes no time; with jitter, devices wait for each other
  Time device{0};       ///< the time of the ops of a device that is alone; a mean over devices
  Time network{0};      ///< while at least one part is under way
  Time transfer{0};     ///< of bytes; the rest of `network` is gaps and latencies
  std::uint64_t calls = 0, parts = 0;
  std::uint64_t ops = 0;  ///< that the engine ran, of all devices

  /// The share of the network's time during which devices compute; 1 without communication.
  double hidden() const;
  /// The speed-up over one device, divided by the number of devices, if each device has its own samples.
  double efficiency() const { return static_cast<double>(device.count()) / static_cast<double>(step.count()); }
  /// The largest cost: "computation" if the efficiency is 0.9 or more, otherwise "stragglers", "bandwidth" or
  /// "latency".
  std::string limit() const;
};

/// Throws MisuseError for options out of range, also if times could exceed 2^62 ns (146 years).
void check(const SimulationOptions& options);

/// Runs the steps on one thread of this machine. The same options give the same result. The time that this takes grows
/// as devices x layers x steps, and its memory as devices x layers. Throws what check() throws.
SimulatedStep simulate(const SimulationOptions& options);

}  // namespace windrow
