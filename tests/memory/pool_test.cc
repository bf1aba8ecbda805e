#include "windrow/memory/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>

#include "tests/engine/support.h"
#include "tests/memory/counting_allocator.h"
#include "tests/seed.h"

namespace windrow {
namespace {

using testing::CountingAllocator;
using testing::error_of;

TEST(Pool, RoundsUpByAFifthAtMostAndNeverDown) {
  std::size_t before = 0;
  for (std::size_t bytes = 0; bytes < 100'000; bytes += 7) {
    const std::size_t rounded = Pool::rounded(bytes);
    EXPECT_GE(rounded, bytes);
    EXPECT_EQ(rounded % memory_alignment, 0u);
    EXPECT_GE(rounded, before);
    EXPECT_EQ(Pool::rounded(rounded), rounded);
    EXPECT_LE(rounded - aligned_size(std::max<std::size_t>(bytes, 1)), rounded / 5) << bytes;
    before = rounded;
  }
  EXPECT_GE(Pool::rounded(std::size_t{5} << 50), std::size_t{5} << 50);
}

TEST(Pool, GivesAgainWhatCameBack) {
  auto below = std::make_shared<CountingAllocator>();
  Pool pool(below);
  std::byte* first = pool.allocate(1000);
  std::memset(first, 1, 1000);
  pool.deallocate(first, 1000);
  std::byte* second = pool.allocate(1010);
  EXPECT_EQ(first, second);
  EXPECT_EQ(below->allocations, 1);
  EXPECT_EQ(pool.stats().reused, 1u);
  EXPECT_EQ(pool.stats().in_use, Pool::rounded(1000));
  EXPECT_EQ(pool.stats().kept, 0u);
  pool.deallocate(second, 1010);
  EXPECT_EQ(pool.stats().in_use, 0u);
  EXPECT_EQ(pool.stats().kept, Pool::rounded(1000));
}

TEST(Pool, ReturnsEverythingToTheAllocatorBelow) {
  auto below = std::make_shared<CountingAllocator>();
  {
    Pool pool(below);
    for (std::size_t bytes : {0u, 64u, 300u, 5000u, 100000u}) pool.deallocate(pool.allocate(bytes), bytes);
    EXPECT_GT(below->held, 0u);
    pool.trim();
    EXPECT_EQ(below->held, 0u);
    EXPECT_EQ(pool.stats().kept, 0u);
    pool.deallocate(pool.allocate(99), 99);
  }
  EXPECT_EQ(below->held, 0u);
}

TEST(Pool, TrimsBeforeItRefuses) {
  auto below = std::make_shared<CountingAllocator>();
  Pool pool(below, {.limit = 1024});
  pool.deallocate(pool.allocate(512), 512);
  pool.deallocate(pool.allocate(256), 256);
  std::byte* whole = pool.allocate(1024);
  EXPECT_EQ(below->held, 1024u);
  EXPECT_EQ(error_of<OutOfMemory>([&] { pool.allocate(1); }),
            "pool of counting: 64 bytes are not to be had; 1024 are in use, and 1024 is the limit");
  pool.deallocate(whole, 1024);
}

TEST(Pool, TrimsWhenTheMemoryBelowIsFull) {
  auto below = std::make_shared<CountingAllocator>(1024);
  Pool pool(below);
  pool.deallocate(pool.allocate(512), 512);
  std::byte* whole = pool.allocate(1024);
  EXPECT_EQ(error_of<OutOfMemory>([&] { pool.allocate(1); }),
            "pool of counting: 64 bytes are not to be had; 1024 are in use, and counting: full");
  EXPECT_EQ(pool.stats().in_use, 1024u);
  pool.deallocate(whole, 1024);
}

TEST(Pool, CountsItsPeakAndNoRefusals) {
  Pool pool(host_allocator(), {.limit = 1024});
  std::byte* a = pool.allocate(512);
  std::byte* b = pool.allocate(256);
  pool.deallocate(a, 512);
  EXPECT_THROW(pool.allocate(4096), OutOfMemory);
  EXPECT_EQ(pool.stats().peak_in_use, 768u);
  EXPECT_EQ(pool.stats().in_use, 256u);
  EXPECT_EQ(pool.stats().kept, 512u);
  EXPECT_EQ(pool.stats().allocations, 2u);
  pool.deallocate(b, 256);
}

TEST(Pool, TakesNothingInPlaceOfPiecesThatAreNotBackYet) {
  auto below = std::make_shared<CountingAllocator>();
  Pool pool(below, {.limit = 1024});
  for (std::size_t bytes : {256u, 512u}) pool.deallocate(pool.allocate(bytes), bytes);
  below->pause = std::chrono::milliseconds(20);
  std::thread trimmer([&] { pool.trim(); });
  while (below->deallocations == 0) std::this_thread::yield();  // the first piece is on its way
  std::byte* whole = pool.allocate(1024);
  trimmer.join();
  EXPECT_EQ(below->most_held, 1024u);
  pool.deallocate(whole, 1024);
}

TEST(Pool, ServesLargeRequestsWithUpToFourTimesAsMuch) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  auto below = std::make_shared<CountingAllocator>();
  Pool pool(below);
  std::byte* const large = pool.allocate(8 * mib);
  pool.deallocate(large, 8 * mib);
  EXPECT_EQ(pool.allocate(2 * mib), large);
  EXPECT_EQ(pool.stats().in_use, 8 * mib);
  std::byte* const other = pool.allocate(2 * mib);
  EXPECT_NE(other, large);
  pool.deallocate(large, 2 * mib);
  EXPECT_EQ(pool.stats().kept, 8 * mib);
  std::byte* const small = pool.allocate(mib);
  EXPECT_NE(small, large);
  EXPECT_EQ(below->held, 11 * mib);
  pool.deallocate(small, mib);
  pool.deallocate(other, 2 * mib);
  EXPECT_EQ(pool.stats().in_use, 0u);
  EXPECT_EQ(pool.stats().kept, below->held);
}

TEST(Pool, GivesALargePieceBackWhereALargerOneIsNeeded) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  auto below = std::make_shared<CountingAllocator>();
  Pool pool(below);
  const auto each_size = [&] {
    for (std::size_t bytes = 4 * mib; bytes <= 64 * mib; bytes += mib) pool.deallocate(pool.allocate(bytes), bytes);
  };
  for (int round = 0; round < 5; ++round) each_size();
  EXPECT_LE(below->held, 2 * 64 * mib);  // one of each doubling
  EXPECT_EQ(pool.stats().kept, below->held);
  EXPECT_EQ(pool.stats().in_use, 0u);
  const int allocations = below->allocations;
  each_size();
  EXPECT_EQ(below->allocations, allocations);
}

TEST(Pool, NeedsAnAllocatorBelow) {
  EXPECT_EQ(error_of<MisuseError>([] { Pool(nullptr); }), "pool: no allocator below; expected one");
}

TEST(Pool, ServesThreadsAtOnceAndKeepsItsLimit) {
  auto below = std::make_shared<CountingAllocator>();
  Pool pool(below, {.limit = 50'000});  // what both hold at most is 61'440
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<std::byte*, std::size_t>> mine;
    for (int i = 0; i < 20'000; ++i) {
      if (mine.size() > 5 || (!mine.empty() && random() % 2 == 0)) {
        pool.deallocate(mine.back().first, mine.back().second);
        mine.pop_back();
      } else {
        const std::size_t bytes = random() % 5000;
        try {
          mine.emplace_back(pool.allocate(bytes), bytes);
          std::memset(mine.back().first, static_cast<int>(seed), bytes);
        } catch (const OutOfMemory&) {
          pool.trim();  // the limit is where both meet: that is what is tested
        }
      }
      ASSERT_LE(below->held, 50'000u);
    }
    for (const auto& [start, bytes] : mine) pool.deallocate(start, bytes);
  };
  std::thread other(work, 1u);
  work(2u);
  other.join();
  EXPECT_EQ(pool.stats().in_use, 0u);
  EXPECT_EQ(pool.stats().kept, below->held);
}

TEST(Pool, DoesNotReuseWhatIsToMakeRoomForAnotherRequest) {
  auto below = std::make_shared<CountingAllocator>();
  Pool pool(below, {.limit = 64 * 1024});
  std::byte* const held = pool.allocate(24 * 1024);
  for (const std::size_t kib : {24, 8}) pool.deallocate(pool.allocate(kib * 1024), kib * 1024);
  below->pause = std::chrono::milliseconds(50);
  std::byte* large = nullptr;
  std::thread other([&] { large = pool.allocate(40 * 1024); });  // needs both pieces to go back
  while (below->deallocations == 0) std::this_thread::yield();
  EXPECT_THROW(pool.allocate(8 * 1024), OutOfMemory);  // although a piece of this size may still be there
  EXPECT_THROW(pool.allocate(std::size_t{1} << 30), OutOfMemory);
  EXPECT_EQ(pool.stats().in_use, 64u * 1024);
  other.join();
  EXPECT_LE(below->most_held, 64u * 1024);
  pool.deallocate(large, 40 * 1024);
  pool.deallocate(held, 24 * 1024);
}

TEST(Pool, KeepsItsLimitWhateverThreadsDoAtTheSameTime) {
  const unsigned seed = testing::first_seed();
  SCOPED_TRACE("WINDROW_TEST_SEED=" + std::to_string(seed));
  constexpr std::size_t limit = 6 << 20;
  auto below = std::make_shared<CountingAllocator>();
  Pool pool(below, {.limit = limit, .largest_piece = 2 << 20});
  std::atomic<bool> beyond = false;
  const auto use = [&](unsigned number) {
    std::mt19937 random(seed * 100 + number);
    std::vector<std::pair<std::byte*, std::size_t>> held;
    for (int i = 0; i < 4000; ++i) {
      if (!held.empty() && random() % 2 == 0) {
        const std::size_t at = random() % held.size();
        pool.deallocate(held[at].first, held[at].second);
        held[at] = held.back();
        held.pop_back();
        continue;
      }
      const std::size_t bytes = std::size_t{1} << (10 + random() % 12), more = random() % bytes;
      try {
        held.emplace_back(pool.allocate(bytes + more), bytes + more);
      } catch (const OutOfMemory&) {
      }
      if (pool.stats().in_use > limit) beyond = true;
      if (random() % 64 == 0) pool.trim(random() % limit);
    }
    for (const auto& [start, bytes] : held) pool.deallocate(start, bytes);
  };
  std::vector<std::thread> threads;
  for (unsigned number = 0; number < 6; ++number) threads.emplace_back(use, number);
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(beyond);
  EXPECT_LE(below->most_held, limit);
  EXPECT_EQ(pool.stats().in_use, 0u);
}

TEST(Pool, WaitsWithoutALimitIfItsPatienceIsTheLongestTime) {
  Pool pool(host_allocator(), {.limit = 1 << 20, .patience = std::chrono::nanoseconds::max()});
  std::byte* const first = pool.allocate(800'000);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pool.deallocate(first, 800'000);
  });
  std::byte* const second = pool.allocate(700'000);
  other.join();
  pool.deallocate(second, 700'000);
}

TEST(Pool, TakesTheLargestNumbersAsNoLimit) {
  for (const std::size_t most : {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2 + 1, SIZE_MAX / 2}) {
    Pool pool(host_allocator(), {.limit = most, .largest_piece = most});
    pool.deallocate(pool.allocate(1000), 1000);
    EXPECT_THROW(pool.allocate(most), OutOfMemory);
    EXPECT_THROW(pool.allocate(SIZE_MAX / 4), OutOfMemory);
    EXPECT_EQ(pool.stats().in_use, 0u);
  }
}

}  // namespace
}  // namespace windrow
