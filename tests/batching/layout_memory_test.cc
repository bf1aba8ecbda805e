// Layouts: their memory, which is used again from minibatch to minibatch, and their groups.
#include "batching/src/layout/layout_memory.h"

#include <gtest/gtest.h>

#include "tests/batching/trainer.h"

namespace windrow {
namespace {

using testing::Graphs;
using testing::many_trees;
using testing::Trainer;

TEST(LayoutMemory, IsReturnedWhereMinibatchesAreMuchSmaller) {
  std::vector<std::int32_t> kept;
  size_again(kept, 1'000'000);
  const std::size_t large = kept.capacity();
  size_again(kept, 500'000);
  EXPECT_EQ(kept.capacity(), large);
  size_again(kept, 10);
  EXPECT_EQ(kept.size(), 10u);
  EXPECT_LT(kept.capacity(), large / 100);
}

TEST(LayoutMemory, HoldsNothingOfEarlierMinibatches) {
  for (const SchedulePolicy schedule : {SchedulePolicy::level, SchedulePolicy::depth, SchedulePolicy::agenda}) {
    const RunnerOptions options{.groups = 3, .group_flops = 1, .schedule = schedule};
    Trainer s({}, options);
    unsigned seed = 0;
    for (const int samples : {40, 3, 60, 1, 25}) {
      const Graphs graphs(s.function, many_trees(++seed, samples));
      const double in_old = s.runner.differentiate(graphs.pointers).loss();
      Runner new_runner(s.host, s.function, s.parameters, options);
      EXPECT_EQ(new_runner.differentiate(graphs.pointers).loss(), in_old) << samples << " samples";
    }
  }
}

TEST(Layouts, FormAsManyGroupsAsHaveWorkEnough) {
  const auto batches = [](std::int64_t group_flops) {
    Trainer s({}, {.groups = 8, .group_flops = group_flops});
    const Graphs graphs(s.function, std::vector<GraphData>(4, many_trees(3, 1).front()));
    s.runner.differentiate(graphs.pointers).loss();
    return s.runner.stats().batches;
  };
  const auto of_one_group = batches(INT64_MAX);
  EXPECT_GT(batches(1), of_one_group * 3 / 2) << "two groups, since levels are narrow";
  EXPECT_EQ(batches(1'000'000'000), of_one_group);
}

}  // namespace
}  // namespace windrow
