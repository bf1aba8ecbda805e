#include "windrow/training/internal/simulation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "buckets.h"

namespace windrow {
namespace {

using Time = VirtualClock::Time;

void require(bool good, const std::string& what) {
  if (!good) throw MisuseError("simulate: " + what);
}

void check_layer(const SimulatedLayer& layer) {
  require(layer.bytes > 0 && layer.bytes % 4 == 0,
          std::to_string(layer.bytes) + " bytes of a layer; expected a multiple of 4 above 0");
  require(std::min({layer.forward, layer.backward, layer.update}) >= Time(0),
          "a time of a layer below 0; expected 0 or more");
}

void check_network(const NetworkModel& network) {
  require(network.bandwidth > 0, "a bandwidth that is not above 0");
  require(network.latency >= Time(0), "a latency below 0; expected 0 or more");
  require(network.gap >= Time(0), "a gap below 0; expected 0 or more");
}

void check_parallel(const DataParallelOptions& parallel) {
  require(parallel.bucket_bytes > 0, "buckets of 0 bytes; expected at least 1");
  require(parallel.part_bytes % 4 == 0,
          std::to_string(parallel.part_bytes) + " bytes of a part; expected a multiple of 4, or 0");
  require(parallel.compression.form == Compression::Form::none, "compression is not simulated; expected none");
  require(parallel.sharded == nullptr, "a sharded update; expected none");
}

/// In doubles, which do not overflow.
void check_sizes(const SimulationOptions& options) {
  constexpr int most_products = 1'000'000, most_parts = 10'000'000;
  const auto layers = static_cast<double>(options.layers.size()), steps = static_cast<double>(options.steps);
  require(options.devices * layers * steps <= most_products,
          std::to_string(options.devices) + " devices x " + std::to_string(options.layers.size()) + " layers x " +
              std::to_string(options.steps) + " steps; expected a product of at most " + std::to_string(most_products));
  double bytes = 0, computation = 0;
  for (const SimulatedLayer& layer : options.layers) {
    bytes += static_cast<double>(layer.bytes);
    for (const Time time : {layer.forward, layer.backward, layer.update}) {
      computation += static_cast<double>(time.count());
    }
  }
  require(bytes <= 0x1p53, "layers of more than 2^53 bytes; expected smaller ones");
  require(computation > 0, "layers that take no time; expected one that does");
  const auto part = static_cast<double>(options.parallel.part_bytes);
  const double parts = steps * (layers + (part > 0 ? bytes / part : 0));
  require(parts <= most_parts, "more than " + std::to_string(most_parts) +
                                   " parts in all steps; expected larger parts, smaller layers or fewer steps");
  const NetworkModel& network = options.network;
  const double message = static_cast<double>(network.latency.count()) + static_cast<double>(network.gap.count());
  const double transfer = options.devices > 1 ? 2 * bytes / network.bandwidth * 1e9 : 0;
  // As if nothing overlapped, and jitter doubled the times of all ops.
  const double time = steps * (2 * computation + transfer) + parts * network.messages(options.devices) * message;
  require(time < 0x1p62, "times that may exceed 2^62 ns (146 years); expected shorter ones");
}

/// A number in [0, 1) that depends on all of them (SplitMix64).
double drawn(std::uint64_t seed, std::uint64_t device, std::uint64_t op) {
  std::uint64_t x = seed;
  for (const std::uint64_t part : {device, op}) {
    x += 0x9e3779b97f4a7c15ull * (part + 1);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x ^= x >> 31;
  }
  return static_cast<double>(x >> 11) * 0x1p-53;
}

/// How far devices are in a step.
struct Progress {
  int forward_passes = 0;  // that have ended
  Time end{0};             // of the last backward pass
};

/// A device, and the ops that its program pushes.
class SimulatedDevice {
 public:
  SimulatedDevice(VirtualClock& clock, const Communicator& group, const SimulationOptions& options)
      : clock_(clock), lane_(clock), group_(group), options_(options) {
    Engine& engine = clock.engine();
    for (const SimulatedLayer& layer : options.layers) {
      weights_.push_back(engine.new_var("weights"));
      states_.push_back(engine.new_var("state"));
      gradients_.push_back(Tensor(group.device(), 1, static_cast<Index>(layer.bytes / 4), "gradient"));
    }
    descent_ = engine.new_var("gradient of a state");
  }
  SimulatedDevice(const SimulatedDevice&) = delete;
  SimulatedDevice& operator=(const SimulatedDevice&) = delete;

  /// The forward pass and the backward pass.
  void compute(Progress& progress) {
    counts_ = step_++ > 0;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      std::vector<Access> accesses = {read(weights_[i]), overwrite(states_[i])};
      if (i > 0) accesses.push_back(read(states_[i - 1]));
      push("forward", options_.layers[i].forward, accesses);
    }
    clock_.engine().push([&progress] { ++progress.forward_passes; }, {read(states_.back())},
                         {.name = "end of forward"});
    for (std::size_t i = weights_.size(); i-- > 0;) {
      const Tensor& gradient = gradients_[i];
      push("backward", options_.layers[i].backward,
           {read(weights_[i]), read(states_[i]), mutate(descent_), gradient.write_access()}, &gradient);
    }
    clock_.engine().push([this, &progress] { progress.end = std::max(progress.end, clock_.now()); },
                         {read(gradients_.front().var())}, {.name = "end of backward"});
  }
  void sum() {
    const auto push = [this](std::size_t, const Buckets::Parts& parts, const CollectiveOptions& options) {
      group_.all_reduce(tensors_of(parts), Combine::sum, options);
    };
    Buckets sums(options_.parallel, {.name = "gradients", .pushed_at = std::source_location::current()}, push);
    for (std::size_t i = gradients_.size(); i-- > 0;) sums.add(0, {i, gradients_[i]});
    sums.push();
  }
  void update() {
    counts_ = step_ < options_.steps;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      push("update", options_.layers[i].update, {read(gradients_[i].var()), mutate(weights_[i])});
    }
  }

  /// The time that its ops take from one end of the backward pass to the next, summed over all steps that count.
  Time time_of_ops() const { return time_of_ops_; }

 private:
  void push(OpName name, Time time, const std::vector<Access>& accesses, const Tensor* written = nullptr) {
    const double factor =
        1 + options_.jitter * (2 * drawn(options_.seed, static_cast<std::uint64_t>(group_.rank()), pushed_++) - 1);
    // A time above 0 is at least 1 ns, so that each step takes time.
    const Time takes(time.count() == 0 ? 0 : std::max(1ll, std::llround(static_cast<double>(time.count()) * factor)));
    if (counts_) time_of_ops_ += takes;
    if (written == nullptr) {
      return clock_.engine().push_async([this, takes](OnComplete done) { lane_.run(takes, std::move(done)); }, accesses,
                                        {.name = name});
    }
    clock_.engine().push_async(
        [this, takes, view = written->view()](OnComplete done) {
          view.write();
          lane_.run(takes, std::move(done));
        },
        accesses, {.name = name});
  }

  VirtualClock& clock_;
  VirtualLane lane_;
  const Communicator& group_;
  const SimulationOptions& options_;
  std::vector<Var> weights_, states_;  // by layer
  std::vector<Tensor> gradients_;
  Var descent_;
  std::uint64_t pushed_ = 0;
  int step_ = 0;         // steps that have begun
  bool counts_ = false;  // whether time_of_ops_ has the ops that are pushed now
  Time time_of_ops_{0};
};

/// The results of running the steps. Times are sums over all steps that count.
struct Trial {
  Time time{0};
  Time device{0};  // what the ops of a device take, a mean
  NetworkUse use;
  std::uint64_t ops = 0;
};

Trial run(const SimulationOptions& options) {
  VirtualClock clock;
  const SimulatedGroup group(clock, options.devices, options.network);
  std::vector<std::unique_ptr<SimulatedDevice>> devices;
  for (int rank = 0; rank < options.devices; ++rank) {
    devices.push_back(std::make_unique<SimulatedDevice>(clock, group[rank], options));
  }
  std::vector<Progress> steps(static_cast<std::size_t>(options.steps));
  const auto phase = [&](const auto& push) {
    for (const auto& device : devices) push(*device);
    if (!options.overlap) clock.run();
  };
  try {
    for (Progress& step : steps) {
      phase([&step](SimulatedDevice& device) { device.compute(step); });
      phase([](SimulatedDevice& device) { device.sum(); });
      phase([](SimulatedDevice& device) { device.update(); });
      // Pushed ops take memory, so the next step is pushed as late as possible. While a backward pass of this step is
      // unfinished, no sum of its first layer has begun, so no op of the next step could begin either.
      clock.run_until([&] { return step.forward_passes == options.devices; });
    }
    clock.run();
  } catch (...) {
    clock.end();  // before the devices, which pending ops use
    throw;
  }
  double of_devices = 0;
  for (const auto& device : devices) of_devices += static_cast<double>(device->time_of_ops().count());
  return {steps.back().end - steps.front().end, Time(std::llround(of_devices / options.devices)), group.use(),
          clock.engine().stats().pushed};
}

}  // namespace

double SimulatedStep::hidden() const {
  if (network.count() == 0) return 1;
  return std::clamp(1 - static_cast<double>((step - computation).count()) / static_cast<double>(network.count()), 0.0,
                    1.0);
}

std::string SimulatedStep::limit() const {
  if (efficiency() >= 0.9) return "computation";
  if (computation - device > step - computation) return "stragglers";
  return 2 * transfer >= network ? "bandwidth" : "latency";
}

void check(const SimulationOptions& options) {
  require(!options.layers.empty(), "no layers; expected at least one");
  require(options.devices >= 1, std::to_string(options.devices) + " devices; expected at least 1");
  require(options.steps >= 2, std::to_string(options.steps) + " steps; expected at least 2");
  require(options.jitter >= 0 && options.jitter < 1, "a jitter below 0 or not below 1");
  check_network(options.network);
  check_parallel(options.parallel);
  for (const SimulatedLayer& layer : options.layers) check_layer(layer);
  check_sizes(options);
}

SimulatedStep simulate(const SimulationOptions& options) {
  check(options);
  SimulatedStep result;
  const Trial trial = run(options);
  const int counted = options.steps - 1;
  const auto all = static_cast<std::uint64_t>(options.steps);
  result.step = trial.time / counted;
  result.device = trial.device / counted;
  result.network = trial.use.busy / options.steps;
  result.transfer = trial.use.transfer / options.steps;
  result.calls = trial.use.calls / all;
  result.parts = trial.use.parts / all;
  result.ops = trial.ops;
  SimulationOptions alone = options;
  alone.network = {.bandwidth = std::numeric_limits<double>::infinity(),
                   .latency = Time(0),
                   .gap = Time(0),
                   .window_bytes = std::numeric_limits<std::size_t>::max()};
  result.computation = run(alone).time / counted;
  return result;
}

}  // namespace windrow
