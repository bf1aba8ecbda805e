// How good plans are: beside an exhaustive search for tiny programs, and beside their lower bound for large ones.
#include <gtest/gtest.h>

#include <random>

#include "tests/memory/memory_programs.h"
#include "tests/seed.h"
#include "windrow/memory/planner.h"

namespace windrow {
namespace {

using testing::PlanChecker;
using testing::random_memory_program;

/// Buffers of a program without views, in-place steps and alignments, by exhaustive search.
class Exhaustive {
 public:
  explicit Exhaustive(const MemoryProgram& program) : program_(program) {
    const auto before = testing::predecessors_of(program);
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
  /// The most bytes of buffers of which each two are alive together.
  std::size_t largest_clique() const {
    std::size_t most = 0;
    for (std::size_t set = 0; set < (std::size_t{1} << together_.size()); ++set) {
      std::size_t bytes = 0;
      bool is_clique = true;
      for (std::size_t a = 0; a < together_.size(); ++a) {
        if ((set >> a & 1) == 0) continue;
        if (takes_bytes_[a]) bytes += program_.buffers[a].bytes;
        for (std::size_t b = 0; b < a; ++b) is_clique = is_clique && ((set >> b & 1) == 0 || together_[a][b]);
      }
      if (is_clique) most = std::max(most, bytes);
    }
    return most;
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
  const unsigned seed = testing::first_seed();
  std::size_t planned = 0, optimal = 0;
  for (unsigned i = 0; i < 100; ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed + i));
    std::mt19937 random(seed + i);
    MemoryProgram program =
        random_memory_program(random, {.steps = 2, .most_bytes = 6, .order = order, .views = false, .in_place = false});
    for (PlannedBuffer& buffer : program.buffers) buffer.alignment = 1;
    Exhaustive exhaustive(program);
    const MemoryPlan plan = plan_memory(program);
    const std::size_t least = exhaustive.optimum();
    EXPECT_LE(plan.lower_bound, least);
    if (order == StepOrder::serial) {
      EXPECT_EQ(plan.lower_bound, exhaustive.largest_clique());
    }
    EXPECT_GE(plan.bytes, least);
    planned += plan.bytes;
    optimal += least;
  }
  EXPECT_LE(static_cast<double>(planned), 1.005 * static_cast<double>(optimal));
}

TEST(MemoryPlannerOptimum, IsFoundForTinySerialPrograms) { compare_with_exhaustive_search(StepOrder::serial); }
TEST(MemoryPlannerOptimum, IsFoundForTinyConcurrentPrograms) { compare_with_exhaustive_search(StepOrder::dependences); }

/// A program of buffers whose lives are given by their first and last step.
struct Life {
  std::size_t bytes;
  std::uint32_t first, last;
};
MemoryProgram program_of(const std::vector<Life>& lives) {
  MemoryProgram program;
  std::uint32_t steps = 0;
  for (const Life& life : lives) steps = std::max(steps, life.last + 1);
  program.steps.resize(steps);
  for (const Life& life : lives) {
    const std::uint32_t buffer = program.add(PlannedBuffer{.bytes = life.bytes, .alignment = 1});
    program.steps[life.first].writes.push_back(buffer);
    if (life.last > life.first) program.steps[life.last].reads.push_back(buffer);
  }
  return program;
}

TEST(MemoryPlannerOptimum, IsNearInProgramsThatFragment) {
  const auto ratio = [](const std::vector<Life>& lives) {
    const MemoryProgram program = program_of(lives);
    const MemoryPlan plan = plan_memory(program);
    PlanChecker(program, plan).check();
    return static_cast<double>(plan.bytes) / static_cast<double>(plan.lower_bound);
  };
  // Each buffer is a little larger than the one that it could replace.
  std::vector<Life> growing;
  for (std::uint32_t i = 0; i < 60; ++i) growing.push_back({100 + 7 * i, i, i + 4});
  EXPECT_LE(ratio(growing), 1.05);
  // Every other buffer ends, and larger ones follow, which fit into none of the gaps of an online allocator.
  std::vector<Life> gaps;
  for (std::uint32_t i = 0; i < 32; ++i) gaps.push_back({64, i, i % 2 == 0 ? 32 + i / 2 : 80});
  for (std::uint32_t i = 0; i < 8; ++i) gaps.push_back({128, 50 + i, 80});
  EXPECT_LE(ratio(gaps), 1.05);
  // Forward and backward: the last ones to come are the first ones to go, with a workspace each.
  std::vector<Life> nested;
  for (std::uint32_t i = 0; i < 40; ++i) {
    nested.push_back({50 + i * 37 % 90, i, 80 - i});
    nested.push_back({20 + i * 53 % 140, i, i + 1});
    nested.push_back({20 + i * 29 % 140, 79 - i, 80 - i});
  }
  EXPECT_LE(ratio(nested), 1.05);
}

TEST(MemoryPlannerOptimum, IsNearInLargePrograms) {
  for (const StepOrder order : {StepOrder::serial, StepOrder::dependences}) {
    std::mt19937 random(testing::first_seed());
    const MemoryProgram program = random_memory_program(random, {.steps = 600, .most_bytes = 100'000, .order = order});
    const MemoryPlan plan = plan_memory(program, {.effort = 10'000'000});
    if (order == StepOrder::serial) {
      EXPECT_LE(static_cast<double>(plan.bytes), 1.1 * static_cast<double>(plan.lower_bound));
    }
    EXPECT_LT(plan.bytes, plan.unshared_bytes * 3 / 4);
  }
}

}  // namespace
}  // namespace windrow
