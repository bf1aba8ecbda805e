#include "gpu.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "program.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/operators.h"

namespace windrow::perf {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

/// The processor time of the calling thread.
double thread_ms() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

/// The time of the smallest kernel in a chain, with what the host needs to issue it.
double launch_floor_ms(const Device& device) {
  constexpr int count = 2000;
  const Tensor x(device, 1, 32);
  x.set(std::vector<float>(32, 1.0f));
  double best = 1e9;
  for (int repetition = 0; repetition < 3; ++repetition) {
    device.engine->wait_all();
    const auto began = Clock::now();
    for (int i = 0; i < count; ++i) apply(device, op::neg, {.in = {x}}, x);
    device.engine->wait_all();
    best = std::min(best, milliseconds(Clock::now() - began) / count);
  }
  return best;
}

/// With the hidden and the embedding size, of those that the model has; 0: the model's own.
WorkloadOptions sized(const std::string& model, WorkloadOptions options, int hidden) {
  for (const WorkloadSize& size : workload_kind(model).sizes) {
    if (hidden != 0 && (size.name == "hidden" || size.name == "embedding")) options.sizes[size.name] = hidden;
  }
  return options;
}

/// Without the training samples that would be less than a minibatch at the end of an epoch.
Workload in_full_minibatches(Workload workload, std::size_t batch) {
  if (workload.training.size() >= batch) workload.training.resize(workload.training.size() / batch * batch);
  return workload;
}

class Measurement {
 public:
  struct Case {
    std::string model;
    int hidden, batch;  // hidden: 0 for the model's own
  };
  Measurement(const GpuOptions& options, const Case& of)
      : options_(options),
        of_(of),
        engine_(EngineOptions{}),
        device_(program::open_device(engine_, options.device)),
        workload_(in_full_minibatches(make_workload(of.model, device_, sized(of.model, options.workload, of.hidden)),
                                      static_cast<std::size_t>(of.batch))),
        trainer_(
            device_, workload_,
            {.minibatch = static_cast<std::size_t>(of.batch), .optimiser = {.rate = workload_.kind->learning_rate}}) {
    const std::size_t least = options.inference ? 1 : static_cast<std::size_t>(of.batch);
    if (samples().size() < least) {
      throw MisuseError(of.model + ": " + std::to_string(samples().size()) +
                        (options.inference
                             ? " validation samples; expected at least one for --inference"
                             : " training samples; expected at least " + std::to_string(least) + ", a full minibatch"));
    }
  }

  Record measure() {
    for (int i = 0; i < 2; ++i) pass();  // compiles kernels, and takes memory
    const RunnerStats before = stats();
    std::vector<Passed> all;
    for (int i = 0; i < options_.passes; ++i) all.push_back(pass());
    std::ranges::sort(all, {}, [](const Passed& one) { return one.ms / one.units; });
    const Passed& median = all[all.size() / 2];
    const RunnerStats after = stats();
    const auto passes = static_cast<double>(options_.passes);
    const double minibatches = static_cast<double>(after.minibatches - before.minibatches) / passes;
    const double schedule_ms = static_cast<double>(after.schedule_ns - before.schedule_ns) * 1e-6 / passes;
    const program::DeviceFlags& device = options_.device;
    Record record = {{"model", of_.model},
                     {"mode", options_.inference ? "inference" : "training"},
                     {"device", device.device},
                     {"levels", device.levels + (device.graphs ? ", graphs" : "")},
                     {"precision", device.precision}};
    if (of_.hidden != 0) record["hidden"] = of_.hidden;
    record.update({{"batch", of_.batch},
                   {"unit", workload_.kind->unit},
                   {"units_per_s", median.units / median.ms * 1e3},
                   {"gflops", median.flops / median.ms * 1e-6},
                   {"minibatch_ms", median.ms / minibatches},
                   {"caller_ms", median.caller_ms / minibatches},
                   {"schedule_ms", schedule_ms / minibatches}});
    add_device_time(record);
    if (options_.inference && of_.batch == 1) record["latency_ms"] = latency_ms();
    record["data"] = options_.workload.data.empty() ? "generated" : options_.workload.data;
    return record;
  }

 private:
  const std::vector<Sample>& samples() const { return options_.inference ? workload_.validation : workload_.training; }
  RunnerStats stats() const { return options_.inference ? evaluator_->stats() : trainer_.stats(); }

  struct Passed {
    double ms, caller_ms, units, flops;
  };
  /// All minibatches are full: of the training set, as many as it fills; of the validation set, which is smaller, at
  /// least some, for which its samples come again and again.
  Passed pass() {
    constexpr std::size_t most = 512, some = 16;
    const auto batch = static_cast<std::size_t>(of_.batch);
    const std::size_t minibatches = std::min(samples().size() / batch, most);
    const auto began = Clock::now();
    const double before = thread_ms();
    Passed passed{};
    if (options_.inference) {
      passed = evaluate(std::max(minibatches, some));
    } else {
      const Trainer::Pass trained = trainer_.train(minibatches * batch);
      passed.units = static_cast<double>(trained.units);
      passed.flops = 3 * trained.flops;
    }
    passed.caller_ms = thread_ms() - before;
    engine_.wait_all();
    passed.ms = milliseconds(Clock::now() - began);
    return passed;
  }

  Passed evaluate(std::size_t minibatches) {
    Passed passed{};
    const std::unique_ptr<Score> score = evaluator_->score();
    std::vector<std::size_t> numbers(static_cast<std::size_t>(of_.batch));
    for (std::size_t i = 0, next = 0; i < minibatches; ++i) {
      for (std::size_t& number : numbers) {
        number = next++ % samples().size();
        passed.units += static_cast<double>(samples()[number].units);
        passed.flops += samples()[number].flops;
      }
      score->add(numbers);
    }
    score->metrics();
    return passed;
  }

  /// From the call for one sample until its score is known: the median of some.
  double latency_ms() {
    std::vector<double> times;
    for (std::size_t i = 0; i < std::min<std::size_t>(samples().size(), 200); ++i) {
      const auto began = Clock::now();
      const auto score = evaluator_->score();
      score->add({&i, 1});
      score->metrics();
      times.push_back(milliseconds(Clock::now() - began));
    }
    std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
    return times[times.size() / 2];
  }

  /// From a further pass, which is traced. The events of a trace take time of their own, so the device's time is
  /// compared with that of this pass. They enclose calls, and so gaps in which the device waits for a launch; a lane's
  /// calls do not overlap.
  void add_device_time(Record& record) {
    const double floor = launch_floor_ms(device_);
    const std::int64_t before = stats().minibatches;
    engine_.trace().start();
    const double traced = pass().ms;
    engine_.trace().stop();
    const auto minibatches = static_cast<double>(stats().minibatches - before);
    const TraceSummary summary = engine_.trace().summary();
    double busy = 0, calls = 0;
    for (const TraceSummary::Row& row : summary.device_work) calls += static_cast<double>(row.count);
    for (const TraceSummary::Track& track : summary.tracks) {
      if (track.name == device_.name + " device") busy = milliseconds(track.busy);
    }
    record.update({{"launch_floor_us", floor * 1e3},
                   {"calls_per_minibatch", calls / minibatches},
                   {"traced_ms", traced / minibatches},
                   {"device_ms", busy / minibatches},
                   {"idle_share", std::max(1 - busy / traced, 0.0)}});
  }

  const GpuOptions& options_;
  const Case of_;
  Engine engine_;
  const program::ToldOnce once_{engine_};
  const Device device_;
  Workload workload_;
  Trainer trainer_;
  const std::unique_ptr<Learner> evaluator_ = workload_.network->learner({});
};

}  // namespace

const char* const gpu_fields =
    "All minibatches are full. With --inference the samples of the validation set come again and again.\n"
    "Fields of a record (a unit is a tree, a sentence or a word):\n"
    "  units_per_s          throughput of the median pass\n"
    "  gflops               the same in floating point operations, by the model's formula\n"
    "  minibatch_ms         time of a minibatch in that pass\n"
    "  caller_ms            processor time of a minibatch of the thread that trains or evaluates\n"
    "  schedule_ms          time of a minibatch in which the host builds and schedules it, whichever thread does\n"
    "  launch_floor_us      time of the smallest op in a chain\n"
    "  calls_per_minibatch  kernels, products and copies; a graph is one call\n"
    "  traced_ms            time of a minibatch in a further pass, which is traced\n"
    "  device_ms            the part of it in which the device computes a call, or waits for the launch of one that "
    "has\n"
    "                       begun: at most so long it works\n"
    "  idle_share           1 - device_ms / traced_ms: at least this share of the time the device is idle\n"
    "  latency_ms           with --inference and one sample a minibatch: time from the call for one sample until its\n"
    "                       score is known, one after the other; the median\n";

void leave_out_work() {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  ::setenv("WINDROW_CUDA_PLUGIN", (program / "windrow_no_work.so").c_str(), 1);
  ::setenv("WINDROW_CUDA_CACHE", "", 1);
}

void measure_gpu(const GpuOptions& options, const Report& report) {
  if (options.device.device == "cpu") {
    throw MisuseError("device cpu; expected one of CUDA: windrow-perf train measures the host");
  }
  const std::vector<int> sizes = options.hidden.empty() ? std::vector<int>{0} : options.hidden;
  for (const std::string& model : options.models) {
    for (const int hidden : sizes) check_workload(model, sized(model, options.workload, hidden));
  }
  for (const std::string& model : options.models) {
    for (const int hidden : sizes) {
      for (const int batch : options.batches) report(Measurement(options, {model, hidden, batch}).measure());
    }
  }
}

}  // namespace windrow::perf
