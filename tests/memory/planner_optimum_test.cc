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
  explicit Exhaustive(const MemoryProgram& program) : program_(program) {
    const auto before = predecessors_of(program);
    const std::size_t count = program.buffers.size();
    std::vector<std::vector<std::uint32_t>> users(count);
    for (std::uint32_t step = 0; step < program.steps.size(); ++step) {
      for (const auto* list : {&program.steps[step].reads, &program.steps[step].writes}) {
        for (const std::uint32_t buffer : *list) users[buffer].push_back(step);
      }
    }
    const auto ends_before = [&](std::size_t a, std::size_t b) {
      const auto held_after = program.buffers[a].held == Held::after || program.buffers[a].held == Held::throughout;
      const auto held_before = program.buffers[b].held == Held::before || program.buffers[b].held == Held::throughout;
      if (held_after || held_before) return false;
      for (const auto u : users[a]) {
        for (const auto v : users[b]) {
          if (!before[v][u]) return false;
        }
      }
      return true;
    };
    takes_bytes_.resize(count);
    together_.assign(count, std::vector<bool>(count));
    for (std::size_t a = 0; a < count; ++a) {
      takes_bytes_[a] = !users[a].empty() || program.buffers[a].held != Held::no;
      for (std::size_t b = 0; b < a; ++b) {
        together_[a][b] = together_[b][a] = !ends_before(a, b) && !ends_before(b, a);
      }
    }
  }

  /// The least bytes of any placement.
  std::size_t optimum() {
    best_ = 0;
    for (const PlannedBuffer& buffer : program_.buffers) best_ += buffer.bytes;
    offsets_.clear();
    place_next(0);
    return best_;
  }

 private:
  void place_next(std::size_t so_far) {
    const std::size_t buffer = offsets_.size();
    if (buffer == program_.buffers.size()) {
      best_ = so_far;
      return;
    }
    const std::size_t bytes = takes_bytes_[buffer] ? program_.buffers[buffer].bytes : 0;
    for (std::size_t offset = 0; std::max(so_far, offset + bytes) < best_; ++offset) {
      bool is_free = true;
      for (std::size_t other = 0; other < buffer && bytes > 0; ++other) {
        const std::size_t other_bytes = takes_bytes_[other] ? program_.buffers[other].bytes : 0;
        const bool meets = offset < offsets_[other] + other_bytes && offsets_[other] < offset + bytes;
        is_free = is_free && !(meets && together_[buffer][other]);
      }
      if (!is_free) continue;
      offsets_.push_back(offset);
      place_next(std::max(so_far, offset + bytes));
      offsets_.pop_back();
    }
  }

  const MemoryProgram& program_;
  std::vector<bool> takes_bytes_;
  std::vector<std::vector<bool>> together_;
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
