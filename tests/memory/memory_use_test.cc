// What pools and segments say of their memory, and how they return it.
#include <gtest/gtest.h>

#include <thread>

#include "tests/engine/support.h"
#include "tests/memory/counting_allocator.h"
#include "windrow/memory/pool.h"
#include "windrow/memory/segments.h"

namespace windrow {
namespace {

using testing::CountingAllocator;
using testing::error_of;
using testing::Gate;
using namespace std::chrono_literals;

constexpr std::size_t block = 64 * 1024;

/// Small pieces are the pool's, the others are cut from segments.
struct Stack {
  explicit Stack(std::size_t limit = unlimited)
      : segments(std::make_shared<Segments>(below, SegmentsOptions{.least = 4 * block, .limit = limit})),
        pool(segments, {.largest_piece = 1024}) {}

  std::shared_ptr<CountingAllocator> below = std::make_shared<CountingAllocator>();
  std::shared_ptr<Segments> segments;
  Pool pool;
};

TEST(MemoryUse, CountsWhatIsLiveAndWhatIsCachedInAllLayers) {
  Stack stack;
  Pool& pool = stack.pool;
  EXPECT_EQ(pool.use().live, 0u);
  EXPECT_EQ(pool.use().fragmentation(), 0);
  std::byte* const small = pool.allocate(1024);
  std::byte* const large = pool.allocate(block);
  EXPECT_EQ(pool.use().live, block + 1024);
  EXPECT_EQ(pool.use().cached, 3 * block - 1024);
  EXPECT_EQ(pool.use().live + pool.use().cached, stack.below->held);
  EXPECT_EQ(pool.use().fragmentation(), 0);
  pool.deallocate(small, 1024);
  EXPECT_EQ(pool.use().live, block);
  EXPECT_EQ(pool.use().peak_live, block + 1024);
  EXPECT_EQ(pool.use().cached, 3 * block);
  EXPECT_EQ(pool.use().largest_cached, 3 * block - 1024);
  EXPECT_NEAR(pool.use().fragmentation(), 1024.0 / (3 * block), 1e-9);
  pool.deallocate(large, block);
  EXPECT_EQ(pool.use().limit, unlimited);
  EXPECT_EQ(Stack(100).pool.use().limit, 100u);
  EXPECT_EQ(Pool(host_allocator(), {.limit = 100}).use().limit, 100u);
}

TEST(MemoryUse, IsTrimmedToAsMuchAsIsToBeKept) {
  auto below = std::make_shared<CountingAllocator>();
  Pool pool(below);
  std::vector<std::byte*> pieces;
  for (int i = 0; i < 8; ++i) pieces.push_back(pool.allocate(1024));
  std::byte* const large = pool.allocate(block);
  for (std::byte* const piece : pieces) pool.deallocate(piece, 1024);
  pool.deallocate(large, block);
  pool.trim(block);
  EXPECT_EQ(pool.use().cached, 8 * 1024u);  // the large piece goes first
  pool.trim(2500);
  EXPECT_EQ(pool.use().cached, 2048u);
  EXPECT_EQ(below->held, 2048u);
  pool.trim();
  EXPECT_EQ(below->held, 0u);
}

TEST(MemoryUse, IsTrimmedInAllLayersButWhereSegmentsArePartlyLive) {
  Stack stack;
  Pool& pool = stack.pool;
  std::byte* const small = pool.allocate(1024);
  std::byte* const first = pool.allocate(8 * block);
  std::byte* const second = pool.allocate(8 * block);
  pool.deallocate(first, 8 * block);
  pool.deallocate(second, 8 * block);
  const std::size_t held = stack.below->held;
  pool.trim(held);
  EXPECT_EQ(stack.below->held, held);
  pool.trim(held / 2);
  EXPECT_LT(stack.below->held, held);
  EXPECT_LE(pool.use().cached, held / 2);
  EXPECT_GT(pool.use().cached, 0u);
  pool.trim();
  EXPECT_EQ(stack.below->held, 4 * block);  // the segment with the small piece
  pool.deallocate(small, 1024);
  pool.trim();
  EXPECT_EQ(stack.below->held, 0u);
}

TEST(MemoryUse, StaysWithinTheLimitOfSegments) {
  Stack stack(8 * block);
  Pool& pool = stack.pool;
  std::byte* const a = pool.allocate(4 * block);
  std::byte* const b = pool.allocate(3 * block);
  EXPECT_EQ(
      error_of<OutOfMemory>([&] { pool.allocate(2 * block); }),
      "pool of counting: 131072 bytes are not to be had; 458752 are in use, and counting: 131072 bytes beside the "
      "524288 taken would exceed the limit of 524288");
  std::byte* const c = pool.allocate(block);  // the rest of a segment
  EXPECT_EQ(stack.below->held, 8 * block);
  pool.deallocate(a, 4 * block);
  pool.deallocate(b, 3 * block);
  std::byte* const d = pool.allocate(4 * block);
  EXPECT_LE(stack.below->most_held, 8 * block);
  pool.deallocate(c, block);
  pool.deallocate(d, 4 * block);
}

TEST(MemoryUse, WaitsForFreesOfOtherThreadsBeforeItRefuses) {
  Pool pool(std::make_shared<CountingAllocator>(), {.limit = block, .patience = testing::patience});
  std::byte* const first = pool.allocate(block);
  Gate begun;
  std::thread other([&] {
    EXPECT_TRUE(begun.pass());
    std::this_thread::sleep_for(10ms);
    pool.deallocate(first, block);
  });
  begun.open();
  std::byte* const second = pool.allocate(block);
  other.join();
  pool.deallocate(second, block);
  // With nothing in use there is nothing to wait for.
  EXPECT_THROW(pool.allocate(block + 1), OutOfMemory);
  Pool hasty(std::make_shared<CountingAllocator>(), {.limit = block, .patience = 1ms});
  std::byte* const third = hasty.allocate(block);
  EXPECT_THROW(hasty.allocate(1), OutOfMemory);
  hasty.deallocate(third, block);
}

}  // namespace
}  // namespace windrow
