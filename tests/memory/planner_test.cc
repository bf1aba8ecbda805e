#include "windrow/memory/internal/planner.h"

#include <random>

#include "memory_programs.h"
#include "tests/engine/support.h"
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

// How good plans are, beside an exhaustive search for tiny programs.

/// Buffers of a program without in-place steps and alignment, by exhaustive search.
class Exhaustive {
 public:
  explicit Exhaustive(const MemoryProgram& program) : program_(program), lives_(program) {}

  /// The least bytes of any placement.
  std::size_t optimum() {
    best_ = 0;
    for (const PlannedBuffer& buffer : program_.buffers) best_ += buffer.bytes;
    offsets_.clear();
    place_next(0);
    return best_;
  }

 private:
  std::size_t bytes_of(std::uint32_t buffer) const {
    return lives_.take_bytes(buffer) ? program_.buffers[buffer].bytes : 0;
  }
  void place_next(std::size_t so_far) {
    const auto buffer = static_cast<std::uint32_t>(offsets_.size());
    if (buffer == program_.buffers.size()) {
      best_ = so_far;
      return;
    }
    const std::size_t bytes = bytes_of(buffer);
    for (std::size_t offset = 0; std::max(so_far, offset + bytes) < best_; ++offset) {
      bool is_free = true;
      for (std::uint32_t other = 0; other < buffer && bytes > 0; ++other) {
        const bool meets = offset < offsets_[other] + bytes_of(other) && offsets_[other] < offset + bytes;
        is_free = is_free && !(meets && lives_.meet(buffer, other));
      }
      if (!is_free) continue;
      offsets_.push_back(offset);
      place_next(std::max(so_far, offset + bytes));
      offsets_.pop_back();
    }
  }

  const MemoryProgram& program_;
  const Lives lives_;
  std::vector<std::size_t> offsets_;
  std::size_t best_ = 0;
};

void compare_with_exhaustive_search(StepOrder order) {
  const unsigned seed = first_seed();
  std::size_t planned = 0, optimal = 0;
  for (unsigned i = 0; i < 100; ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed + i));
    std::mt19937 random(seed + i);
    MemoryProgram program =
        random_memory_program(random, {.steps = 2, .most_bytes = 6, .order = order, .alignment = 1, .in_place = false});
    Exhaustive exhaustive(program);
    const MemoryPlan plan = plan_memory(program);
    const std::size_t least = exhaustive.optimum();
    EXPECT_GE(plan.bytes, least);
    planned += plan.bytes;
    optimal += least;
  }
  EXPECT_LE(static_cast<double>(planned), 1.005 * static_cast<double>(optimal));
}

TEST(MemoryPlannerOptimum, IsFoundForTinySerialPrograms) { compare_with_exhaustive_search(StepOrder::serial); }
TEST(MemoryPlannerOptimum, IsFoundForTinyConcurrentPrograms) { compare_with_exhaustive_search(StepOrder::dependences); }

}  // namespace
}  // namespace windrow::testing
