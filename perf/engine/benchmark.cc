#include "benchmark.h"

#include <algorithm>
#include <thread>

#include "machine.h"
#include "system.h"
#include "windrow/engine/error.h"

namespace windrow::perf {
namespace {

/// Pushes whose latency is noted, in each repetition.
constexpr std::int64_t timed_pushes = 20'000;
/// For threads of the last system to fall asleep.
constexpr auto pause = std::chrono::milliseconds(5);

/// Ticks against the clock.
struct TickRate {
  double a_ns = 0;
  std::uint32_t to_read = UINT32_MAX;  ///< the counter itself, at least

  TickRate() {
    const auto began = std::chrono::steady_clock::now();
    const std::uint64_t first = ticks();
    std::chrono::duration<double, std::nano> took{};
    while (took < std::chrono::milliseconds(20)) {
      const std::uint64_t before = ticks();
      to_read = std::min(to_read, static_cast<std::uint32_t>(ticks() - before));
      took = std::chrono::steady_clock::now() - began;
    }
    a_ns = static_cast<double>(ticks() - first) / took.count();
  }
};

/// The value below which that share of all lies. Sorts.
template <class T>
T percentile(std::vector<T>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[std::min(static_cast<std::size_t>(share * static_cast<double>(values.size())), values.size() - 1)];
}

/// One system on one pattern, and what was measured.
class Contestant {
 public:
  Contestant(const EngineBenchmark& options, const Pattern& pattern, const std::string& name, const TickRate& rate)
      : options_(options),
        pattern_(pattern),
        name_(name),
        rate_(rate),
        system_(make_system(name, pattern, options.workers)) {
    run(options.ops / 10 + 1, nullptr);
  }

  void repeat() {
    const Times times = run(options_.ops, nullptr);
    const auto ns_an_op = [&](double seconds) { return 1e9 * seconds / static_cast<double>(options_.ops); };
    total_.push_back(ns_an_op(times.total));
    push_.push_back(ns_an_op(times.push));
    run(timed_pushes, &latencies_);
  }

  Record record() {
    const auto latency = [&](double share) {
      const auto took = std::max(percentile(latencies_, share), rate_.to_read) - rate_.to_read;
      return static_cast<double>(took) / rate_.a_ns;
    };
    Record record;
    record.add("system", name_)
        .add("pattern", pattern_.name)
        .add("workers", static_cast<std::int64_t>(options_.workers));
    record.add("ns_per_op", percentile(total_, 0.5)).add("p05", percentile(total_, 0.05));
    record.add("p95", percentile(total_, 0.95)).add("push_ns", percentile(push_, 0.5));
    record.add("push_p50", latency(0.5)).add("push_p999", latency(0.999)).add("rss_mb", peak_rss_mb());
    return record.add("task_ns", options_.task_ns).add("ops", options_.ops);
  }

 private:
  Times run(std::int64_t ops, std::vector<std::uint32_t>* push_ticks) {
    std::this_thread::sleep_for(pause);
    std::vector<Counter> counters(static_cast<std::size_t>(pattern_.counters));
    const auto task_ticks = static_cast<std::uint64_t>(static_cast<double>(options_.task_ns) * rate_.a_ns);
    const Times times = system_->run({pattern_, ops, task_ticks, counters.data(), push_ticks});
    check(counters, ops);
    return times;
  }

  void check(const std::vector<Counter>& counters, std::int64_t ops) const {
    std::vector<std::uint64_t> expected(counters.size());
    for (std::int64_t i = 0; i < ops; ++i) {
      const Task& task = pattern_.tasks[static_cast<std::size_t>(i) % pattern_.tasks.size()];
      ++expected[static_cast<std::size_t>(task.counts)];
    }
    for (std::size_t i = 0; i < counters.size(); ++i) {
      if (counters[i].value == expected[i]) continue;
      throw Error(name_ + ", pattern " + pattern_.name + ": counter " + std::to_string(i) + " is " +
                  std::to_string(counters[i].value) + "; expected " + std::to_string(expected[i]));
    }
  }

  const EngineBenchmark& options_;
  const Pattern& pattern_;
  const std::string name_;
  const TickRate& rate_;
  const std::unique_ptr<System> system_;
  std::vector<double> total_, push_;  // by repetition
  std::vector<std::uint32_t> latencies_;
};

}  // namespace

std::vector<Record> benchmark_engines(const EngineBenchmark& options) {
  const TickRate rate;
  std::vector<Record> records;
  for (const std::string& name : options.patterns) {
    const Pattern pattern = Pattern::named(name);
    std::vector<std::unique_ptr<Contestant>> contestants;
    for (const std::string& system : options.systems) {
      contestants.push_back(std::make_unique<Contestant>(options, pattern, system, rate));
    }
    for (int i = 0; i < options.repetitions; ++i) {
      for (const auto& contestant : contestants) contestant->repeat();
    }
    for (const auto& contestant : contestants) records.push_back(contestant->record());
  }
  return records;
}

}  // namespace windrow::perf
