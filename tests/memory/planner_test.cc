#include "windrow/memory/planner.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/engine/support.h"
#include "tests/memory/memory_programs.h"
#include "tests/seed.h"

namespace windrow {
namespace {

using testing::error_of;
using testing::MemoryProgramShape;
using testing::PlanChecker;
using testing::random_memory_program;

TEST(MemoryPlanner, ReusesTheBytesOfBuffersThatEnded) {
  MemoryProgram chain;
  std::uint32_t last = chain.add(PlannedBuffer{.bytes = 64, .held = Held::before});
  for (int i = 0; i < 10; ++i) {
    const auto next = chain.add(PlannedBuffer{.bytes = 64});
    chain.add(PlannedStep{.reads = {last}, .writes = {next}});
    last = next;
  }
  const MemoryPlan plan = plan_memory(chain);
  EXPECT_EQ(plan.bytes, 128u);
  EXPECT_EQ(plan.lower_bound, 128u);
  EXPECT_EQ(plan.unshared_bytes, 11 * 64u);
  PlanChecker(chain, plan).check();
}

TEST(MemoryPlanner, LetsAResultTakeOverItsOperand) {
  MemoryProgram chain;
  std::uint32_t last = chain.add(PlannedBuffer{.bytes = 64, .held = Held::before});
  for (int i = 0; i < 10; ++i) {
    const auto next = chain.add(PlannedBuffer{.bytes = 64, .held = i == 9 ? Held::after : Held::no});
    chain.add(PlannedStep{.reads = {last}, .writes = {next}, .in_place = {{.operand = last, .result = next}}});
    last = next;
  }
  EXPECT_EQ(plan_memory(chain).bytes, 64u);
  EXPECT_EQ(plan_memory(chain).lower_bound, 64u);
  chain.buffers[0].held = Held::throughout;
  EXPECT_EQ(plan_memory(chain).bytes, 128u);
}

/// The operand is read again later, or by the same step in another way.
TEST(MemoryPlanner, WorksInPlaceOnlyOnAnOperandThatEnds) {
  MemoryProgram program;
  const auto x = program.add(PlannedBuffer{.bytes = 64, .held = Held::before});
  const auto y = program.add(PlannedBuffer{.bytes = 64});
  const auto z = program.add(PlannedBuffer{.bytes = 64, .held = Held::after});
  program.add(PlannedStep{.reads = {x}, .writes = {y}, .in_place = {{.operand = x, .result = y}}});
  program.add(PlannedStep{.reads = {x, y}, .writes = {z}, .in_place = {{.operand = x, .result = z}}});
  const MemoryPlan plan = plan_memory(program);
  EXPECT_EQ(plan.bytes, 128u);
  EXPECT_NE(plan.offsets[x], plan.offsets[y]);
  EXPECT_EQ(plan.offsets[x], plan.offsets[z]);
  PlanChecker(program, plan).check();

  MemoryProgram halves;
  const auto whole = halves.add(PlannedBuffer{.bytes = 128, .held = Held::before});
  const auto left = halves.add(PlannedBuffer{.bytes = 64, .view_of = whole});
  const auto right = halves.add(PlannedBuffer{.bytes = 64, .view_of = whole, .view_offset = 64});
  const auto sum = halves.add(PlannedBuffer{.bytes = 64});
  halves.add(PlannedStep{.reads = {left, right}, .writes = {sum}, .in_place = {{.operand = right, .result = sum}}});
  EXPECT_EQ(plan_memory(halves).bytes, 192u);
  halves.steps[0].reads = {right};
  EXPECT_EQ(plan_memory(halves).bytes, 128u);
  EXPECT_EQ(plan_memory(halves).offsets[sum], 64u);
}

TEST(MemoryPlanner, KeepsABufferWhileAViewOfItIsUsed) {
  MemoryProgram program;
  const auto a = program.add(PlannedBuffer{.bytes = 128});
  const auto view = program.add(PlannedBuffer{.bytes = 64, .view_of = a, .view_offset = 64});
  const auto inner = program.add(PlannedBuffer{.bytes = 16, .view_of = view, .view_offset = 16});
  const auto b = program.add(PlannedBuffer{.bytes = 128});
  program.add(PlannedStep{.writes = {a}});
  program.add(PlannedStep{.writes = {b}});
  program.add(PlannedStep{.reads = {inner}});
  const MemoryPlan plan = plan_memory(program);
  EXPECT_EQ(plan.bytes, 256u);
  EXPECT_EQ(plan.offsets[inner], plan.offsets[a] + 80);
}

/// Two branches may run at once, unless the order is serial.
TEST(MemoryPlanner, SharesNothingBetweenStepsThatMayRunTogether) {
  MemoryProgram program;
  const auto x = program.add(PlannedBuffer{.bytes = 64, .held = Held::throughout});
  for (int branch = 0; branch < 4; ++branch) {
    const auto h = program.add(PlannedBuffer{.bytes = 64});
    program.add(PlannedStep{.reads = {x}, .writes = {h}});
    program.add(PlannedStep{.reads = {h}});
  }
  EXPECT_EQ(plan_memory(program).bytes, 2 * 64u);
  program.order = StepOrder::dependences;
  EXPECT_EQ(plan_memory(program).bytes, 5 * 64u);
  EXPECT_EQ(plan_memory(program).lower_bound, 5 * 64u);
  program.steps[2].after = {1};
  EXPECT_EQ(plan_memory(program).bytes, 4 * 64u);
}

TEST(MemoryPlanner, GivesNoPlaceToWhatNobodyUses) {
  MemoryProgram program;
  program.add(PlannedBuffer{.bytes = 64});
  program.add(PlannedBuffer{.bytes = 0, .held = Held::throughout});
  EXPECT_EQ(plan_memory(program).bytes, 0u);
  program.add(PlannedBuffer{.bytes = 100, .alignment = 256, .held = Held::after});
  program.add(PlannedBuffer{.bytes = 100, .alignment = 4, .held = Held::throughout});
  program.add(PlannedBuffer{.bytes = 100, .alignment = 4, .held = Held::before});
  const MemoryPlan plan = plan_memory(program);
  EXPECT_EQ(plan.bytes, 200u);
  EXPECT_EQ(plan.alignment, 256u);
  EXPECT_EQ(plan_memory({}).bytes, 0u);
}

TEST(MemoryPlanner, RefusesWhatIsNoProgram) {
  const auto error = [](PlannedBuffer buffer, PlannedStep step) {
    MemoryProgram program{.buffers = {{.bytes = 64, .held = Held::before}}};
    program.add(buffer);
    program.add(std::move(step));
    return error_of<MisuseError>([&] { plan_memory(program); });
  };
  EXPECT_EQ(error({.alignment = 24}, {}), "memory plan: buffer 1 has alignment 24; expected a power of two");
  EXPECT_EQ(error({.view_of = 1}, {}), "memory plan: buffer 1 is a view of buffer 1; expected an earlier one");
  EXPECT_EQ(error({.bytes = 60, .view_of = 0, .view_offset = 8}, {}),
            "memory plan: buffer 1 is a view of 60 bytes from byte 8 of buffer 0, which has 64");
  EXPECT_EQ(error({}, {.reads = {2}}), "memory plan: step 0 reads buffer 2; there are 2");
  EXPECT_EQ(error({}, {.writes = {7}}), "memory plan: step 0 writes buffer 7; there are 2");
  EXPECT_EQ(error({}, {.reads = {1}}),
            "memory plan: step 0 reads buffer 1, which no earlier step writes; expected Held::before");
  EXPECT_EQ(error({}, {.after = {0}}), "memory plan: step 0 is after step 0; expected an earlier one");
  EXPECT_EQ(error({}, {.writes = {1}, .in_place = {{.operand = 0, .result = 1}}}),
            "memory plan: step 0 works in place on buffer 0, which it does not read");
  EXPECT_EQ(error({}, {.reads = {0}, .in_place = {{.operand = 0, .result = 1}}}),
            "memory plan: step 0 works in place for buffer 1, which it does not write");
  const std::size_t huge = std::numeric_limits<std::size_t>::max() / 2;
  MemoryProgram large{.buffers = {{.bytes = huge, .held = Held::after}, {.bytes = huge, .held = Held::after}}};
  EXPECT_NE(error_of<OutOfMemory>([&] { plan_memory(large); }), "");
}

/// A long chain beside four branches that each hold memory: the branches may run one after the other meanwhile.
TEST(MemoryPlanner, OrdersBranchesWhereThatSavesMemoryAndNoStepBeginsLater) {
  MemoryProgram program{.order = StepOrder::dependences};
  const auto x = program.add(PlannedBuffer{.bytes = 64, .held = Held::throughout});
  const auto counter = program.add(PlannedBuffer{.bytes = 64, .held = Held::throughout});
  std::vector<std::uint32_t> ticks;
  for (int i = 0; i < 8; ++i) ticks.push_back(program.add(PlannedStep{.reads = {counter}, .writes = {counter}}));
  for (std::size_t branch = 0; branch < 4; ++branch) {
    const auto h = program.add(PlannedBuffer{.bytes = 1024});
    std::vector<std::uint32_t> after;
    if (branch > 0) after = {ticks[2 * branch - 1]};
    program.add(PlannedStep{.reads = {x}, .writes = {h}, .after = after});
    program.add(PlannedStep{.reads = {h}});
  }
  EXPECT_EQ(plan_memory(program).bytes, 2 * 64u + 4 * 1024);
  const MemoryPlan plan = plan_memory(program, {.edges = ExtraEdges::off_critical_path});
  EXPECT_EQ(plan.bytes, 2 * 64u + 1024);
  EXPECT_EQ(plan.lower_bound, plan.bytes);
  EXPECT_EQ(plan.saved_by_edges, 3 * 1024u);
  const std::vector<MemoryPlan::Edge> edges = {{9, 10}, {11, 12}, {13, 14}};
  EXPECT_EQ(plan.edges, edges);
  PlanChecker(program, plan).check();
  EXPECT_TRUE(plan_memory(program, {.edges = ExtraEdges::off_critical_path, .least_saving = 0.9}).edges.empty());
}

/// Steps that have the same number of predecessors in a row would otherwise run at once.
TEST(MemoryPlanner, AddsNoEdgeThatMakesTheLongestPathLonger) {
  MemoryProgram program{.order = StepOrder::dependences};
  for (int branch = 0; branch < 4; ++branch) {
    const auto h = program.add(PlannedBuffer{.bytes = 1024});
    program.add(PlannedStep{.writes = {h}});
    program.add(PlannedStep{.reads = {h}});
  }
  const MemoryPlan plan = plan_memory(program, {.edges = ExtraEdges::off_critical_path});
  EXPECT_EQ(plan.bytes, 4 * 1024u);
  EXPECT_TRUE(plan.edges.empty());
}

std::uint64_t longest_path(const MemoryProgram& program, const std::vector<MemoryPlan::Edge>& edges) {
  const auto before = testing::predecessors_of(program, edges);
  std::vector<std::uint64_t> end(before.size());
  for (std::size_t round = 0; round < before.size(); ++round) {  // as many as the longest path has steps, at most
    for (std::size_t v = 0; v < before.size(); ++v) {
      std::uint64_t begin = 0;
      for (std::size_t u = 0; u < before.size(); ++u) begin = std::max(begin, before[v][u] ? end[u] : 0);
      end[v] = begin + std::max<std::uint64_t>(program.steps[v].duration, 1);
    }
  }
  return end.empty() ? 0 : *std::max_element(end.begin(), end.end());
}

TEST(MemoryPlanner, AddsEdgesToRandomProgramsThatKeepTheLongestPathAndAreAllNeeded) {
  std::size_t saved = 0;
  for (unsigned seed = testing::first_seed(), end = seed + 100; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const MemoryProgram program = random_memory_program(random, {.order = StepOrder::dependences});
    const MemoryPlan plan = plan_memory(program, {.edges = ExtraEdges::off_critical_path, .least_saving = 0.01});
    PlanChecker(program, plan).check();
    EXPECT_EQ(longest_path(program, plan.edges), longest_path(program, {}));
    for (std::size_t i = 0; i < plan.edges.size(); ++i) {
      std::vector<MemoryPlan::Edge> others = plan.edges;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_FALSE(testing::predecessors_of(program, others)[plan.edges[i].second][plan.edges[i].first]);
    }
    saved += plan.saved_by_edges;
    if (HasFailure()) return;
  }
  EXPECT_GT(saved, 0u);
}

void check_random_programs(const MemoryProgramShape& shape, const MemoryPlanOptions& options) {
  const unsigned seed = testing::first_seed();
  for (unsigned i = 0; i < 200; ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed + i));
    std::mt19937 random(seed + i);
    const MemoryProgram program = random_memory_program(random, shape);
    PlanChecker(program, plan_memory(program, options)).check();
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(MemoryPlanner, SharesOnlyBetweenLivesThatDoNotMeetInRandomSerialPrograms) { check_random_programs({}, {}); }

TEST(MemoryPlanner, SharesOnlyBetweenLivesThatDoNotMeetInRandomConcurrentPrograms) {
  check_random_programs({.order = StepOrder::dependences}, {});
}

}  // namespace
}  // namespace windrow
