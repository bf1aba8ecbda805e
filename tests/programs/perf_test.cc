// What benchmarks are made of: systems that run every op, hazards, graphs, child processes, METG.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "engine/graph.h"
#include "engine/hazards.h"
#include "engine/metg.h"
#include "engine/process.h"
#include "engine/trial.h"
#include "windrow/engine/error.h"

namespace windrow::perf {
namespace {

/// Each system of the build with each pattern that it takes.
template <class Do>
void for_each_trial(Do run) {
  for (const std::string& system : built_system_names()) {
    for (const std::string& name : Pattern::names()) {
      const Pattern pattern = Pattern::named(name, 5);
      if (takes(system, pattern)) run(system, pattern);
    }
  }
}

TEST(Systems, RunEveryOpOnce) {
  for_each_trial([](const std::string& system, const Pattern& pattern) {
    Trial trial(system, pattern, {.workers = 2});
    for (const std::int64_t ops : {1, 7, 3000}) EXPECT_NO_THROW(trial.run({.ops = ops}));
  });
}

TEST(Systems, RunEveryOpOnceInBursts) {
  for_each_trial([](const std::string& system, const Pattern& pattern) {
    Trial trial(system, pattern, {.workers = 2});
    for (const std::int64_t burst : {1, 7, 300, 301}) EXPECT_NO_THROW(trial.run({.ops = 300, .burst = burst}));
  });
}

/// This thread, and those that it starts, on one core.
class OneCore {
 public:
  OneCore() {
    sched_getaffinity(0, sizeof all_, &all_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCore() { sched_setaffinity(0, sizeof all_, &all_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t all_;
};

TEST(Systems, EndOnOneCoreWhereTheyBelieveToHaveMore) {
  const OneCore pinned;
  for_each_trial([](const std::string& system, const Pattern& pattern) {
    Trial(system, pattern, {.workers = 2}).run({.ops = 1000});
  });
}

TEST(Systems, RunNothingBeforeTheyAreLetGo) {
  for_each_trial([](const std::string& system, const Pattern& pattern) {
    if (!holds_a_backlog(system)) return;
    constexpr std::int64_t ops = 20'000;
    const auto made = make_system(system, pattern, {.workers = 1, .pending_ops = 2 * ops});
    std::vector<Counter> counters(static_cast<std::size_t>(pattern.counters));
    const auto sum = [&] {
      std::uint64_t total = 0;
      for (const Counter& counter : counters) total += counter.value;
      return total;
    };
    std::uint64_t before = 1;
    std::vector<std::uint32_t> latencies;
    made->run({.pattern = pattern, .ops = ops, .counters = counters.data(), .push_ticks = &latencies, .held = [&] {
                 before = sum();
               }});
    EXPECT_EQ(before, 0u) << system << ", pattern " << pattern.name;
    EXPECT_GE(sum(), static_cast<std::uint64_t>(ops)) << system << ", pattern " << pattern.name;
    const bool pushes = system != "windrow" || !pattern.replayed;
    EXPECT_EQ(latencies.size(), pushes ? static_cast<std::size_t>(ops) : 0) << system << ", pattern " << pattern.name;
  });
}

TEST(Systems, RefuseWhatTheyDoNotKnow) {
  const Pattern pattern = Pattern::named("A");
  EXPECT_THROW(make_system("mxnet", pattern, {}), MisuseError);
  EXPECT_THROW(takes("mxnet", pattern), MisuseError);
  EXPECT_THROW(Pattern::named("D", 1), MisuseError);
}

/// Who reads or mutates what the other mutates.
bool conflict(const Task& a, const Task& b) {
  const auto touches = [](const Task& task, int cell) {
    return task.mutates == cell || std::find(task.reads.begin(), task.reads.begin() + task.read_count, cell) !=
                                       task.reads.begin() + task.read_count;
  };
  return (a.mutates != Task::none && touches(b, a.mutates)) || (b.mutates != Task::none && touches(a, b.mutates));
}

TEST(Hazards, OrderAllOpsThatConflictAndNoOthers) {
  const auto seed = static_cast<unsigned>(::testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Pattern pattern{"random", 6, 6, {}};
  for (int i = 0; i < 80; ++i) {
    Task task{.mutates = random() % 3 == 0 ? Task::none : static_cast<int>(random() % 6)};
    for (int k = static_cast<int>(random() % 4); k > 0; --k) {
      const int cell = static_cast<int>(random() % 6);
      if (cell != task.mutates) task.reads[static_cast<std::size_t>(task.read_count++)] = cell;
    }
    pattern.tasks.push_back(task);
  }
  Hazards<std::size_t> hazards(pattern);
  std::vector<std::set<std::size_t>> before(pattern.tasks.size());  // all that an op comes after
  for (std::size_t i = 0; i < pattern.tasks.size(); ++i) {
    hazards.precede(pattern.tasks[i], [&](std::size_t other) {
      EXPECT_TRUE(conflict(pattern.tasks[other], pattern.tasks[i])) << other << " before " << i;
      before[i].insert(other);
      before[i].insert(before[other].begin(), before[other].end());
    });
    hazards.enter(pattern.tasks[i], i);
    for (std::size_t other = 0; other < i; ++other) {
      if (conflict(pattern.tasks[other], pattern.tasks[i])) {
        EXPECT_EQ(before[i].count(other), 1u) << other << " before " << i;
      }
    }
  }
}

/// A graph that notes what it was asked to run.
struct NotedGraph {
  std::int64_t length;
  std::vector<std::int64_t>* runs;
  void run(std::int64_t times) { runs->push_back(length * times); }
};

TEST(Replayed, RunsAsManyOpsAsTheJobHas) {
  for (const char* name : {"FA", "FD", "E"}) {
    const Pattern pattern = Pattern::named(name);
    std::vector<Counter> counters(static_cast<std::size_t>(pattern.counters));
    std::vector<std::int64_t> runs;
    Replayed<NotedGraph> replayed(pattern);
    const auto make = [&](std::int64_t length) { return std::make_unique<NotedGraph>(NotedGraph{length, &runs}); };
    for (const std::int64_t ops : {1, 127, 2048, 4096, 5000, 100'000}) {
      runs.clear();
      const Times times = replayed.run({pattern, ops, 0, counters.data()}, make);
      EXPECT_EQ(std::accumulate(runs.begin(), runs.end(), std::int64_t{0}), ops) << name;
      if (runs.size() > 1) {
        EXPECT_EQ(runs[0] % static_cast<std::int64_t>(pattern.tasks.size()), 0) << "the rest begins anew";
      }
      EXPECT_TRUE(std::isnan(times.push));
    }
  }
}

TEST(InChild, GivesWhatWasMeasuredThere) {
  int here = 1;
  EXPECT_EQ(in_child([&] {
              here = 2;
              return 2.5;
            }),
            2.5);
  EXPECT_EQ(here, 1);
}

TEST(InChild, TellsWhatWasThrownThere) {
  try {
    in_child([]() -> double { throw MisuseError("no such thing"); });
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "no such thing");
  }
  EXPECT_THROW(in_child([]() -> double { std::_Exit(3); }), Error);
}

TEST(InChild, HasItsOwnMemory) {
  constexpr std::size_t bytes = 64 << 20;
  const auto grow = [](std::size_t size) {
    return in_child([size] {
      const double before = resident_bytes();
      volatile char touched = std::vector<char>(size, 1)[size / 2];  // the memory is gone again
      (void)touched;
      return peak_resident_bytes() - before;
    });
  };
  if (std::isnan(resident_bytes())) GTEST_SKIP() << "needs /proc";
  EXPECT_GT(grow(bytes), 0.9 * bytes);
  EXPECT_LT(grow(1), 0.5 * bytes) << "the child before does not count";
}

TEST(Metg, LiesBetweenThePointsAroundIt) {
  const std::vector<Efficiency> curve = {{100, 0.1}, {200, 0.6}, {400, 0.4}, {800, 0.6}, {1600, 0.9}};
  EXPECT_NEAR(metg_of(curve, 0.5), 400 * std::sqrt(2), 1e-9) << "half way up, after it was lost";
  EXPECT_NEAR(metg_of(curve, 0.6), 800, 1e-9);
  EXPECT_NEAR(metg_of(curve, 0.9), 1600, 1e-9);
  EXPECT_TRUE(std::isnan(metg_of(curve, 0.95))) << "never";
  EXPECT_TRUE(std::isnan(metg_of(curve, 0.05))) << "below the shortest";
  EXPECT_TRUE(std::isnan(metg_of({}, 0.5)));
}

}  // namespace
}  // namespace windrow::perf
