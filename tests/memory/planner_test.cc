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

void check_random_programs(const MemoryProgramShape& shape) {
  const unsigned seed = testing::first_seed();
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
}  // namespace windrow
