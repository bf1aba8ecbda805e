// What recordings cost: allocations of a replay, counted; and bodies whose allocations fail.
#include <new>

#include "tests/engine/faults.h"
#include "tests/ops/mlp.h"
#include "tests/sanitized.h"

namespace windrow::testing {
namespace {

/// Allocations that fail are those of the host's device, too, which maps its memory.
TEST(Faults, ReachMappedMemory) {
  const auto host = host_allocator();
  constexpr std::size_t bytes = std::size_t{1} << 20;
  host->deallocate(host->allocate(bytes), bytes);
  bool failed = false;
  {
    const faults::Armed armed({.at = 1});
    try {
      host->deallocate(host->allocate(bytes), bytes);
    } catch (const OutOfMemory&) {
      failed = true;
    }
  }
  EXPECT_TRUE(failed);
}

class StaticCosts : public InEveryOrder {};
WINDROW_EVERY_ORDER(StaticCosts);

TEST_P(StaticCosts, AReplayAllocatesNothing) {
  // A batch of 512 rows is so large that operators are cut into pieces.
  for (const Index rows : {16, 512}) {
    if (rows > 16 && workers() > 1) continue;
    Mlp mlp(host, rows > 16 ? std::vector<Index>{12, 256, 128, 4} : std::vector<Index>{12, 20, 16, 4});
    Static step = recorded([&](const StaticInputs& batch) { return mlp.step(batch); });
    const StaticInputs batch = Batches(host, rows).next(0);
    step(batch);
    engine.wait_all();
    std::int64_t calls = 1;
    // The engine's records move between the caches of its threads, until all caches are full.
    for (int tries = 0; calls > 0 && tries < 1000 * workers(); ++tries) {
      const std::int64_t before = faults::asked().calls;
      for (int i = 0; i < 3; ++i) step(batch);
      while (engine.stats().pending > 0) std::this_thread::yield();
      calls = faults::asked().calls - before;
    }
    EXPECT_EQ(calls, 0) << "with " << rows << " rows";
    EXPECT_EQ(step.stats().recorded, 1U);
  }
}

/// Not every allocation fails where a sanitizer watches.
constexpr std::uint64_t static_stride = sanitized ? 7 : 1;

TEST(StaticFaults, LeaveAProgramThatGoesOn) {
  Engine engine({.workers = 1});
  const Device host = host_device(engine);
  const Tensor state(host, 1, 2, "state"), x(host, 1, 2, "x");
  state.set({0, 0});
  x.set({1, -2});
  const auto body = [&](const StaticInputs& call) -> std::vector<Tensor> {
    const Tensor twice = apply(host, op::add, {.in = {call.in[0], call.in[0]}});
    apply(host, op::neg, {.in = {apply(host, op::square, {.in = {twice}})}, .write = Write::add}, state);
    return {apply(host, op::neg, {.in = {state}})};
  };
  float sum = 0;
  bool struck = true;
  for (std::uint64_t at = 1; struck; at += static_stride) {
    SCOPED_TRACE(at);
    const StaticInputs inputs{.in = {x}};
    Static step(host, body);
    bool thrown = false;
    {
      const faults::Armed armed({.at = at, .where = faults::Where::this_thread});
      try {
        step(inputs);
      } catch (const std::bad_alloc&) {
        thrown = true;
      }
      struck = faults::struck();
    }
    if (!thrown) sum += 1;
    ASSERT_EQ(state.get(), (std::vector<float>{-4 * sum, -16 * sum}));
    sum += 1;
    ASSERT_EQ(step(inputs)[0].get(), (std::vector<float>{4 * sum, 16 * sum}));
  }
}

}  // namespace
}  // namespace windrow::testing
