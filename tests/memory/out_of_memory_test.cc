// Each allocation of a program is refused in turn.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/engine/support.h"
#include "tests/memory/counting_allocator.h"
#include "windrow/memory/buffer.h"
#include "windrow/memory/pool.h"

namespace windrow {
namespace {

using testing::CountingAllocator;
using testing::EveryPolicy;

/// Refuses one allocation, by number from 0.
class RefusingAllocator final : public DividingAllocator {
 public:
  explicit RefusingAllocator(std::shared_ptr<Allocator> below) : DividingAllocator(std::move(below), "refusing") {}

  std::byte* allocate(std::size_t bytes) override {
    if (count++ == refused) throw OutOfMemory("refused");
    return below_->allocate(bytes);
  }
  void deallocate(std::byte* start, std::size_t bytes) noexcept override { below_->deallocate(start, bytes); }

  std::atomic<int> count = 0, refused = -1;
};

constexpr int links = 8;

/// A chain in which each op adds one to the bytes of the buffer before, with an arena on the way. Returns the last
/// byte, or -1 if an op on the way had no memory.
int run_chain(Engine& engine, const std::shared_ptr<Allocator>& memory) {
  Arena arena(engine, memory, links * 512);
  std::vector<Buffer> buffers;
  for (int i = 0; i < links; ++i) {
    const std::size_t size = 300 + 40 * static_cast<std::size_t>(i);
    buffers.push_back(i % 3 == 2 ? arena.cut(256, "cut") : Buffer(engine, memory, size, "link"));
    if (i == 0) {
      engine.push([to = buffers[0].bytes()] { *to.write() = std::byte{0}; }, {overwrite(buffers[0].var())});
      continue;
    }
    const Buffer &from = buffers[static_cast<std::size_t>(i) - 1], &to = buffers[static_cast<std::size_t>(i)];
    engine.push(
        [from = from.bytes(), to = to.bytes()] {
          const int before = std::to_integer<int>(*from.read());
          *to.write() = static_cast<std::byte>(before + 1);
        },
        {read(from.var()), overwrite(to.var())});
  }
  try {
    engine.wait(buffers.back().var());
  } catch (const OpError& error) {
    EXPECT_THROW(error.rethrow_root(), OutOfMemory);
    return -1;
  }
  return std::to_integer<int>(*buffers.back().bytes().read());
}

class OutOfMemoryOnEveryPolicy : public EveryPolicy {};
WINDROW_EVERY_POLICY(OutOfMemoryOnEveryPolicy);

TEST_P(OutOfMemoryOnEveryPolicy, LeavesEverythingUsable) {
  int refusals = 0;
  for (int refused = 0;; ++refused) {
    auto below = std::make_shared<CountingAllocator>();
    const auto refusing = std::make_shared<RefusingAllocator>(below);
    Engine engine(options());
    refusing->refused = refused;
    const int result = run_chain(engine, refusing);
    engine.wait_all();
    EXPECT_EQ(below->held, 0u) << refused;
    if (refusing->count <= refused) {
      EXPECT_EQ(result, links - 1);
      break;
    }
    EXPECT_EQ(result, -1) << refused;
    ++refusals;
    refusing->refused = -1;
    EXPECT_EQ(run_chain(engine, refusing), links - 1) << refused;
    engine.wait_all();
    EXPECT_EQ(below->held, 0u) << refused;
  }
  EXPECT_GE(refusals, 6);
}

/// A pool returns what it keeps and tries again, so that one refusal does not show.
TEST_P(OutOfMemoryOnEveryPolicy, IsTriedAgainByAPool) {
  for (int refused = 0; refused < 8; ++refused) {
    auto below = std::make_shared<CountingAllocator>();
    const auto refusing = std::make_shared<RefusingAllocator>(below);
    {
      Engine engine(options());
      const auto memory = std::make_shared<Pool>(refusing);
      refusing->refused = refused;
      EXPECT_EQ(run_chain(engine, memory), links - 1) << refused;
      engine.wait_all();
      EXPECT_EQ(memory->use().live, 0u);
      memory->trim();
      EXPECT_EQ(below->held, 0u);
    }
  }
}

}  // namespace
}  // namespace windrow
