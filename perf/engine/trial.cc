#include "trial.h"

#include <thread>

#include "windrow/engine/error.h"

namespace windrow::perf {
namespace {

constexpr auto pause = std::chrono::milliseconds(5);

TickRate measure() {
  TickRate rate;
  const auto began = std::chrono::steady_clock::now();
  const std::uint64_t first = ticks();
  std::chrono::duration<double, std::nano> took{};
  while (took < std::chrono::milliseconds(20)) {
    const std::uint64_t before = ticks();
    rate.to_read = std::min(rate.to_read, static_cast<std::uint32_t>(ticks() - before));
    took = std::chrono::steady_clock::now() - began;
  }
  rate.a_ns = static_cast<double>(ticks() - first) / took.count();
  return rate;
}

}  // namespace

const TickRate& TickRate::of_machine() {
  static const TickRate rate = measure();
  return rate;
}

Trial::Trial(std::string system, const Pattern& pattern, const SystemOptions& options)
    : name_(std::move(system)), pattern_(pattern), system_(make_system(name_, pattern, options)) {}

Times Trial::run(const Run& run) {
  std::this_thread::sleep_for(pause);
  std::vector<Counter> counters(static_cast<std::size_t>(pattern_.counters));
  const auto task_ticks = static_cast<std::uint64_t>(static_cast<double>(run.task_ns) * TickRate::of_machine().a_ns);
  const Times times = system_->run({.pattern = pattern_,
                                    .ops = run.ops,
                                    .task_ticks = task_ticks,
                                    .counters = counters.data(),
                                    .push_ticks = run.push_ticks,
                                    .held = run.held});
  check(counters, run.ops);
  return times;
}

void Trial::check(const std::vector<Counter>& counters, std::int64_t ops) const {
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

}  // namespace windrow::perf
