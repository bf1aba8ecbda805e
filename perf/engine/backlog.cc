#include "benchmark.h"
#include "process.h"
#include "trial.h"

namespace windrow::perf {
namespace {

/// Ops that warm up the system, so that threads and other first-time costs are not counted.
constexpr std::int64_t warm_ops = 1000;

double growth(const EngineBenchmark& options, const Pattern& pattern, const std::string& system) {
  Trial trial(system, pattern,
              {.workers = options.workers, .pending_ops = static_cast<std::uint64_t>(options.ops) + warm_ops});
  trial.run({.ops = warm_ops});
  double held = 0;
  const double before = resident_bytes();
  trial.run({.ops = options.ops, .held = [&] { held = resident_bytes(); }});
  return held - before;
}

}  // namespace

void measure_backlog(const EngineBenchmark& options, const Report& report) {
  for (const Contest& contest : contests_of(options, Pattern::names())) {
    for (const std::string& system : contest.systems) {
      if (!holds_a_backlog(system)) continue;
      const double bytes = in_child([&] { return growth(options, contest.pattern, system); });
      Record record = record_of(options, contest.pattern, system);
      record.update({{"backlog", options.ops},
                     {"bytes_per_op", bytes / static_cast<double>(options.ops)},
                     {"rss_mb", bytes / 1024 / 1024}});
      report(record);
    }
  }
}

}  // namespace windrow::perf
