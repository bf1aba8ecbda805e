#include <atomic>
#include <thread>
#include <utility>

#include "benchmark.h"
#include "trial.h"
#include "windrow/engine/engine.h"

namespace windrow::perf {
namespace {

/// Gaps in microseconds, each with the number of pushes that follow such a gap.
constexpr std::pair<std::int64_t, int> gaps[] = {{10, 5000}, {100, 5000}, {1000, 1000}, {10'000, 100}};

void pass(std::chrono::microseconds time) {
  const auto begin = std::chrono::steady_clock::now();
  if (time >= std::chrono::milliseconds(1)) std::this_thread::sleep_for(time);
  while (std::chrono::steady_clock::now() - begin < time) {
  }
}

/// Returns the ticks from the push of an op until its function runs.
std::uint64_t start(Engine& engine, Var var) {
  std::atomic<std::uint64_t> began{0};
  const std::uint64_t pushed = ticks();
  engine.push([&] { began.store(ticks(), std::memory_order_release); }, {mutate(var)});
  std::uint64_t begin = 0;
  while ((begin = began.load(std::memory_order_acquire)) == 0) std::this_thread::yield();
  return begin - pushed;
}

}  // namespace

void measure_start(const EngineBenchmark& options, const Report& report) {
  const TickRate& rate = TickRate::of_machine();
  Engine engine({.policy = Policy::pool, .workers = options.workers});
  const Var var = engine.new_var();
  for (const auto& [gap, pushes] : gaps) {
    std::vector<double> took;
    for (int i = 0; i < pushes; ++i) {
      pass(std::chrono::microseconds(gap));
      took.push_back(static_cast<double>(start(engine, var)) / rate.a_ns);
    }
    const double median = percentile(took, 0.5), p99 = percentile(took, 0.99);
    report({{"system", "windrow"},
            {"workers", options.workers},
            {"gap_us", gap},
            {"start_p50", median},
            {"start_p99", p99},
            {"start_max", took.back()}});
  }
}

}  // namespace windrow::perf
