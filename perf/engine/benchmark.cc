#include "benchmark.h"

#include <memory>

#include "process.h"
#include "trial.h"

namespace windrow::perf {
namespace {

/// The number of pushes in each repetition whose latency is recorded.
constexpr std::int64_t timed_pushes = 20'000;

/// One system on one pattern, and its measurements.
class EngineContestant {
 public:
  EngineContestant(const EngineBenchmark& options, const Pattern& pattern, const std::string& system)
      : options_(options), rss_(in_child([&] { return growth(options, pattern, system); })) {}

  void begin(const Pattern& pattern, const std::string& system) {
    trial_ = std::make_unique<Trial>(system, pattern, SystemOptions{.workers = options_.workers});
    trial_->run({.ops = options_.ops / 10 + 1, .task_ns = options_.task_ns});
  }

  void repeat() {
    const Times times = trial_->run({.ops = options_.ops, .task_ns = options_.task_ns});
    const auto ns_an_op = [&](double seconds) { return 1e9 * seconds / static_cast<double>(options_.ops); };
    total_.push_back(ns_an_op(times.total));
    push_.push_back(ns_an_op(times.push));
    trial_->run({.ops = std::min(timed_pushes, options_.ops), .task_ns = options_.task_ns, .push_ticks = &latencies_});
  }

  Record record() {
    const TickRate& rate = TickRate::of_machine();
    const auto latency = [&](double share) {
      return std::max(percentile(latencies_, share) - rate.to_read, 0.0) / rate.a_ns;
    };
    Record record = record_of(options_, trial_->pattern(), trial_->system());
    const double median = percentile(total_, 0.5);
    record.update({{"ns_per_op", median},
                   {"p05", percentile(total_, 0.05)},
                   {"p95", percentile(total_, 0.95)},
                   {"push_ns", percentile(push_, 0.5)},
                   {"push_p50", latency(0.5)},
                   {"push_p999", latency(0.999)},
                   {"rss_mb", rss_ / 1024 / 1024}});
    if (options_.task_ns > 0) {
      record["efficiency"] = static_cast<double>(options_.task_ns) / options_.workers / median;
    }
    record.update({{"task_ns", options_.task_ns}, {"ops", options_.ops}});
    return record;
  }

 private:
  static double growth(const EngineBenchmark& options, const Pattern& pattern, const std::string& system) {
    const double before = resident_bytes();
    Trial trial(system, pattern, {.workers = options.workers});
    trial.run({.ops = options.ops});
    return peak_resident_bytes() - before;
  }

  const EngineBenchmark& options_;
  const double rss_;
  std::unique_ptr<Trial> trial_;
  std::vector<double> total_, push_;  // by repetition
  std::vector<std::uint32_t> latencies_;
};

}  // namespace

std::vector<Contest> contests_of(const EngineBenchmark& options, const std::vector<std::string>& meant) {
  std::vector<Contest> contests;
  for (const std::string& name : options.patterns.empty() ? meant : options.patterns) {
    Contest contest{Pattern::named(name, options.width), {}};
    for (const std::string& system : options.systems) {
      if (takes(system, contest.pattern)) {
        contest.systems.push_back(system);
      } else if (!options.leave_out) {
        refuse(system, contest.pattern);
      }
    }
    contests.push_back(std::move(contest));
  }
  return contests;
}

Record record_of(const EngineBenchmark& options, const Pattern& pattern, const std::string& system) {
  Record record = {{"system", system}, {"pattern", pattern.name}};
  if (pattern.width > 0) record["width"] = pattern.width;
  record["workers"] = options.workers;
  return record;
}

void benchmark_engines(const EngineBenchmark& options, const Report& report) {
  struct Row {
    const Contest& contest;
    std::vector<std::unique_ptr<EngineContestant>> contestants;  // by system
  };
  const std::vector<Contest> contests = contests_of(options, Pattern::names());
  std::vector<Row> rows;
  for (const Contest& contest : contests) {  // memory first, because the systems start threads
    Row& row = rows.emplace_back(Row{contest, {}});
    for (const std::string& system : contest.systems) {
      row.contestants.push_back(std::make_unique<EngineContestant>(options, contest.pattern, system));
    }
  }
  for (Row& row : rows) {
    for (std::size_t i = 0; i < row.contestants.size(); ++i) {
      row.contestants[i]->begin(row.contest.pattern, row.contest.systems[i]);
    }
    for (int i = 0; i < options.repetitions; ++i) {
      for (const auto& contestant : row.contestants) contestant->repeat();
    }
    for (const auto& contestant : row.contestants) report(contestant->record());
    row.contestants.clear();
  }
}

}  // namespace windrow::perf
