// Random programs for the memory planner, and a checker of plans that shares no code with it.
#include "windrow/memory/internal/planner.h"

#include <random>

#include "tests/engine/support.h"
#include "tests/seed.h"

namespace windrow::testing {
namespace {

struct MemoryProgramShape {
  std::size_t steps = 20;
  std::size_t most_bytes = 1000;
  StepOrder order = StepOrder::serial;
  std::size_t alignment = 8;
  std::size_t reach = 8;  ///< steps read buffers that at most so many buffers were added after
  bool held = true, in_place = true;
};

/// Each step reads up to three buffers and writes one or two, most of them new.
MemoryProgram random_memory_program(std::mt19937& random, const MemoryProgramShape& shape) {
  const auto below = [&](std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random);
  };
  MemoryProgram program{.order = shape.order, .alignment = shape.alignment};
  std::vector<std::uint32_t> readable;
  const auto add_buffer = [&](Held held) {
    return program.add(PlannedBuffer{.bytes = below(shape.most_bytes), .held = held});
  };
  readable.push_back(add_buffer(Held::before));
  readable.push_back(add_buffer(Held::throughout));
  const auto recent = [&] { return readable[readable.size() - 1 - below(std::min(shape.reach, readable.size()))]; };
  for (std::size_t i = 0; i < shape.steps; ++i) {
    PlannedStep step;
    for (std::size_t reads = below(4); reads > 0; --reads) step.reads.push_back(recent());
    for (std::size_t writes = 1 + below(2); writes > 0; --writes) {
      const Held held = !shape.held || below(6) > 0 ? Held::no : Held::after;
      step.writes.push_back(below(8) == 0 ? recent() : add_buffer(held));
      if (shape.in_place && !step.reads.empty() && below(2) == 0) {
        step.in_place.push_back({.operand = step.reads[below(step.reads.size())], .result = step.writes.back()});
      }
    }
    readable.insert(readable.end(), step.writes.begin(), step.writes.end());
    program.add(std::move(step));
  }
  return program;
}

/// By step: whether each other step must finish before it begins. Paths are found by Warshall's algorithm.
std::vector<std::vector<bool>> predecessors_of(const MemoryProgram& program) {
  const std::size_t count = program.steps.size();
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
  const auto touches = [&](const std::vector<std::uint32_t>& list, std::uint32_t buffer) {
    return std::ranges::find(list, buffer) != list.end();
  };
  for (std::size_t v = 0; v < count; ++v) {
    for (std::size_t u = 0; u < v; ++u) {
      bool conflict = program.order == StepOrder::serial;
      for (std::uint32_t b = 0; b < program.buffers.size() && !conflict; ++b) {
        const PlannedStep &first = program.steps[u], &then = program.steps[v];
        conflict = (touches(first.writes, b) && (touches(then.writes, b) || touches(then.reads, b))) ||
                   (touches(first.reads, b) && touches(then.writes, b));
      }
      before[v][u] = conflict;
    }
  }
  for (std::size_t via = 0; via < count; ++via) {
    for (std::size_t v = 0; v < count; ++v) {
      if (!before[v][via]) continue;
      for (std::size_t u = 0; u < count; ++u) before[v][u] = before[v][u] || before[via][u];
    }
  }
  return before;
}

/// When buffers of a program are alive.
class Lives {
 public:
  explicit Lives(const MemoryProgram& program)
      : program_(program), before_(predecessors_of(program)), users_(program.buffers.size()) {
    for (std::uint32_t step = 0; step < program.steps.size(); ++step) {
      for (const auto* list : {&program.steps[step].reads, &program.steps[step].writes}) {
        for (const std::uint32_t buffer : *list) users_[buffer].push_back(step);
      }
    }
  }

  bool take_bytes(std::uint32_t buffer) const {
    return program_.buffers[buffer].bytes > 0 && (!users_[buffer].empty() || program_.buffers[buffer].held != Held::no);
  }
  /// Whether all users of a, but the step `both`, finish before all users of b, but that step.
  bool end_before(std::uint32_t a, std::uint32_t b, std::optional<std::uint32_t> both = {}) const {
    const auto is_held = [&](std::uint32_t buffer, Held end) {
      return program_.buffers[buffer].held == end || program_.buffers[buffer].held == Held::throughout;
    };
    if (is_held(a, Held::after) || is_held(b, Held::before)) return false;
    for (const std::uint32_t u : users_[a]) {
      for (const std::uint32_t v : users_[b]) {
        if (u != v ? !before_[v][u] : both != u) return false;
      }
    }
    return true;
  }
  bool meet(std::uint32_t a, std::uint32_t b) const { return !end_before(a, b) && !end_before(b, a); }

 private:
  const MemoryProgram& program_;
  const std::vector<std::vector<bool>> before_;
  std::vector<std::vector<std::uint32_t>> users_;  // by buffer
};

/// Checks every pair of buffers of a plan.
class PlanChecker {
 public:
  PlanChecker(const MemoryProgram& program, const MemoryPlan& plan) : program_(program), plan_(plan), lives_(program) {}

  void check() const {
    ASSERT_EQ(plan_.offsets.size(), program_.buffers.size());
    for (std::uint32_t a = 0; a < plan_.offsets.size(); ++a) {
      if (!lives_.take_bytes(a)) continue;
      EXPECT_EQ(plan_.offsets[a] % program_.alignment, 0u);
      EXPECT_LE(plan_.offsets[a] + program_.buffers[a].bytes, plan_.bytes);
      for (std::uint32_t b = 0; b < a; ++b) {
        if (!lives_.take_bytes(b) || !overlap(a, b)) continue;
        EXPECT_TRUE(!lives_.meet(a, b) || is_in_place(a, b) || is_in_place(b, a))
            << "buffers " << b << " and " << a << " are alive together and share bytes";
      }
    }
  }

 private:
  bool overlap(std::uint32_t a, std::uint32_t b) const {
    return plan_.offsets[a] < plan_.offsets[b] + program_.buffers[b].bytes &&
           plan_.offsets[b] < plan_.offsets[a] + program_.buffers[a].bytes;
  }
  bool is_in_place(std::uint32_t operand, std::uint32_t result) const {
    for (std::uint32_t step = 0; step < program_.steps.size(); ++step) {
      for (const InPlace& in_place : program_.steps[step].in_place) {
        if (in_place.operand == operand && in_place.result == result &&
            plan_.offsets[in_place.operand] == plan_.offsets[in_place.result] &&
            lives_.end_before(operand, result, step)) {
          return true;
        }
      }
    }
    return false;
  }

  const MemoryProgram& program_;
  const MemoryPlan& plan_;
  const Lives lives_;
};

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
