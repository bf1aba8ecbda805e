#include "windrow/memory/internal/planner.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/engine/support.h"
#include "tests/memory/memory_programs.h"
#include "tests/seed.h"

namespace windrow::testing {
namespace {

TEST(MemoryPlanner, LetsAResultTakeOverItsOperand) {
  MemoryProgram chain;
  std::uint32_t last = chain.add(PlannedBuffer{.bytes = 64, .held = Held::before});
  for (int i = 0; i < 10; ++i) {
    const auto next = chain.add(PlannedBuffer{.bytes = 64, .held = i == 9 ? Held::after : Held::no});
    chain.add(PlannedStep{.reads = {last}, .writes = {next}, .in_place = {{.operand = last, .result = next}}});
    last = next;
  }
  EXPECT_EQ(plan_memory(chain).bytes, 64u);
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
}

TEST(MemoryPlanner, GivesNoPlaceToWhatNobodyUses) {
  MemoryProgram program;
  program.add(PlannedBuffer{.bytes = 64});
  program.add(PlannedBuffer{.bytes = 0, .held = Held::throughout});
  EXPECT_EQ(plan_memory(program).bytes, 0u);
  program.alignment = 256;
  program.add(PlannedBuffer{.bytes = 100, .held = Held::after});
  program.add(PlannedBuffer{.bytes = 100, .held = Held::throughout});
  program.add(PlannedBuffer{.bytes = 100, .held = Held::before});
  EXPECT_EQ(plan_memory(program).bytes, 512u);
  EXPECT_EQ(plan_memory({}).bytes, 0u);
}

TEST(MemoryPlanner, RefusesSizesThatOverflow) {
  const std::size_t huge = std::numeric_limits<std::size_t>::max() / 2;
  MemoryProgram large{.buffers = {{.bytes = huge, .held = Held::after}, {.bytes = huge, .held = Held::after}}};
  EXPECT_NE(error_of<OutOfMemory>([&] { plan_memory(large); }), "");
}

void check_random_programs(const MemoryProgramShape& shape) {
  const unsigned seed = first_seed();
  for (unsigned i = 0; i < 200; ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed + i));
    std::mt19937 random(seed + i);
    const MemoryProgram program = random_memory_program(random, shape);
    PlanChecker(program, plan_memory(program)).check();
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(MemoryPlanner, SharesOnlyBetweenLivesThatDoNotMeetInRandomSerialPrograms) { check_random_programs({}); }

TEST(MemoryPlanner, SharesOnlyBetweenLivesThatDoNotMeetInRandomConcurrentPrograms) {
  check_random_programs({.order = StepOrder::dependences});
}

}  // namespace
}  // namespace windrow::testing
