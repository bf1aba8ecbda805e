// How good plans are, beside an exhaustive search for tiny programs.
#include <gtest/gtest.h>

#include <random>

#include "tests/memory/memory_programs.h"
#include "tests/seed.h"
#include "windrow/memory/internal/planner.h"

namespace windrow::testing {
namespace {

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
