// Cuts a run into graphs, for systems that build a graph once and run it repeatedly.
#pragma once

#include <cmath>
#include <map>
#include <memory>

#include "hazards.h"
#include "system.h"

namespace windrow::perf {

/// Runs a pattern as one graph repeatedly, and then the remaining ops as a smaller graph. A Graph is made of (pattern,
/// length, work): it contains the first `length` ops of the pattern, and `work` is the array of their work by task. It
/// has run(times). Graphs are built outside the timed section and kept. An owner. Threads: one at a time.
template <class Graph>
class Replayed {
 public:
  explicit Replayed(const Pattern& pattern) : pattern_(pattern), work_(pattern.tasks.size()) {}

  /// make(length) returns a std::unique_ptr<Graph>. finish() waits for runs that Graph::run has started but not
  /// awaited.
  template <class Make>
  Times run(const Job& job, Make make) {
    return run(job, make, [] {});
  }
  template <class Make, class Finish>
  Times run(const Job& job, Make make, Finish finish) {
    using Clock = std::chrono::steady_clock;
    for (std::size_t i = 0; i < work_.size(); ++i) work_[i] = job.work(pattern_.tasks[i]);
    const std::int64_t whole = longest(), times = job.ops / whole, rest = job.ops % whole;
    Graph* const again = times > 0 ? &graph(whole, make) : nullptr;
    Graph* const last = rest > 0 ? &graph(rest, make) : nullptr;
    const auto begin = Clock::now();
    if (again != nullptr) again->run(times);
    if (last != nullptr) last->run(1);
    finish();
    return {.push = NAN, .total = std::chrono::duration<double>(Clock::now() - begin).count()};
  }

  const Work* work() const { return work_.data(); }

 private:
  /// The length of the repeated graph: a multiple of the number of tasks in the pattern. It is long enough that
  /// starting and ending a run cost little in comparison, and short enough that the graph stays in the cache.
  std::int64_t longest() const {
    constexpr std::int64_t about = 2048;
    if (pattern_.graph_ops > 0) return pattern_.graph_ops;
    const auto turn = static_cast<std::int64_t>(work_.size());
    return std::max<std::int64_t>(about / turn, 1) * turn;
  }

  template <class Make>
  Graph& graph(std::int64_t length, Make make) {
    std::unique_ptr<Graph>& graph = graphs_[length];
    if (graph == nullptr) graph = make(length);
    return *graph;
  }

  const Pattern& pattern_;
  std::vector<Work> work_;                                 // by task
  std::map<std::int64_t, std::unique_ptr<Graph>> graphs_;  // by length
};

}  // namespace windrow::perf
