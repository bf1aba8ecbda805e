// What keeps vertices from sharing batches, on graphs small enough to count by hand.
#include "batch_facts.h"

#include <gtest/gtest.h>

#include "windrow/engine/engine.h"

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

TEST(BatchFacts, OfAModelAreThoseOfItsRunner) {
  Engine engine({.workers = 1});
  for (const char* const model : {"tree-lstm", "dag", "bilstm-char", "parser"}) {
    const Workload workload = make_workload(model, host_device(engine), {.samples = 40, .sizes = {{"hidden", 8}}});
    const BatchFacts facts = batch_facts(workload, {.runner = {}, .minibatch = 16, .most = 2});
    if (!workload.kind->graphs_known) {
      EXPECT_EQ(facts.minibatches, 0);
      continue;
    }
    std::int64_t vertices = 0, by_type = 0, by_level = 0;
    for (std::size_t i = 0; i < 32; ++i) vertices += workload.training[i].vertices;
    for (const BatchFacts::Type& type : facts.types) by_type += type.batches;
    for (const BatchFacts::Level& level : facts.levels) by_level += level.batches;
    EXPECT_EQ(facts.minibatches, 2);
    EXPECT_EQ(facts.vertices, vertices) << model;
    EXPECT_EQ(by_type, facts.batches) << model;
    EXPECT_EQ(by_level, facts.batches) << model;
    const auto& [types, dependencies, schedule, groups] = facts.causes;
    EXPECT_EQ(types + dependencies + schedule + groups, facts.batches) << model;
    EXPECT_GE(schedule, 0) << model;
    EXPECT_GT(facts.path_flops, 0) << model;
    EXPECT_LT(facts.path_flops, facts.flops) << model;
  }
}

}  // namespace
}  // namespace windrow::program
