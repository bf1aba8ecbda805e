// What keeps vertices from sharing batches, on graphs small enough to count by hand.
#include "batch_facts.h"

#include <gtest/gtest.h>

namespace windrow::program {
namespace {

/// A chain of two vertices of type 1 above a leaf of type 0, and a second leaf.
TypedGraph chain_and_leaf() {
  return {.types = 3, .type = {0, 1, 1, 0}, .child_begin = {0, 0, 1, 2, 2}, .children = {0, 1}, .costs = {10, 30, 7}};
}

TEST(BatchFacts, CountWhyThereAreSoManyBatches) {
  const GroupedMinibatch minibatch{.types = {"leaf", "inner", "rare"}, .groups = {chain_and_leaf(), chain_and_leaf()}};
  BatchFacts facts;
  add(facts, minibatch, SchedulePolicy::level);
  EXPECT_EQ(facts.vertices, 8);
  EXPECT_EQ(facts.groups, 2);
  EXPECT_EQ(facts.batches, 6) << "leaves, and two levels of inner vertices, in each group";
  EXPECT_EQ(facts.causes.types, 2) << "the third type does not occur";
  EXPECT_EQ(facts.causes.dependencies, 1);
  EXPECT_EQ(facts.causes.schedule, 0);
  EXPECT_EQ(facts.causes.groups, 3);
  ASSERT_EQ(facts.types.size(), 2u);
  EXPECT_EQ(facts.types[1].name, "inner");
  EXPECT_EQ(facts.types[1].vertices, 4);
  EXPECT_EQ(facts.types[1].batches, 4);
  ASSERT_EQ(facts.levels.size(), 3u);
  EXPECT_EQ(facts.levels[0].vertices, 4);
  EXPECT_EQ(facts.levels[0].batches, 2);
  EXPECT_EQ(facts.path_vertices, 3);
  EXPECT_EQ(facts.path_flops, 70);
  EXPECT_EQ(facts.flops, 160);

  BatchFacts one_by_one;
  add(one_by_one, minibatch, SchedulePolicy::serial);
  EXPECT_EQ(one_by_one.batches, 8);
  EXPECT_EQ(one_by_one.causes.schedule, 5);
  EXPECT_EQ(one_by_one.causes.groups, 0);
}

}  // namespace
}  // namespace windrow::program
