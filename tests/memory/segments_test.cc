#include "windrow/memory/segments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <thread>

#include "tests/engine/support.h"
#include "tests/memory/counting_allocator.h"
#include "tests/seed.h"
#include "windrow/memory/pool.h"

namespace windrow {
namespace {

using testing::CountingAllocator;
using testing::error_of;

constexpr std::size_t kib = 1024;

TEST(Segments, DividesASegmentAndMakesItWholeAgain) {
  auto below = std::make_shared<CountingAllocator>();
  Segments segments(below, {.least = 64 * kib});
  std::byte* const a = segments.allocate(10 * kib);
  std::byte* const b = segments.allocate(20 * kib);
  std::byte* const c = segments.allocate(34 * kib);
  EXPECT_EQ(b, a + 10 * kib);
  EXPECT_EQ(c, b + 20 * kib);
  EXPECT_EQ(below->allocations, 1);
  EXPECT_EQ(segments.stats().in_use, 64 * kib);
  EXPECT_EQ(segments.stats().free, 0u);
  segments.deallocate(a, 10 * kib);
  segments.deallocate(c, 34 * kib);
  EXPECT_EQ(segments.stats().largest_free, 34 * kib);
  segments.deallocate(b, 20 * kib);  // joins both
  EXPECT_EQ(segments.stats().largest_free, 64 * kib);
  EXPECT_EQ(segments.allocate(64 * kib), a);
  segments.deallocate(a, 64 * kib);
  EXPECT_EQ(below->allocations, 1);
}

TEST(Segments, GivesTheSmallestBlockThatIsLargeEnough) {
  Segments segments(std::make_shared<CountingAllocator>(), {.least = 64 * kib});
  std::byte* const a = segments.allocate(20 * kib);
  std::byte* const between = segments.allocate(kib);
  std::byte* const b = segments.allocate(10 * kib);
  std::byte* const last = segments.allocate(33 * kib);
  segments.deallocate(a, 20 * kib);
  segments.deallocate(b, 10 * kib);
  EXPECT_EQ(segments.allocate(9 * kib), b);
  EXPECT_EQ(segments.allocate(11 * kib), a);
  for (std::byte* start : {a, between, b, last}) segments.deallocate(start, 0);
  EXPECT_EQ(segments.stats().largest_free, 64 * kib);
}

TEST(Segments, DoNotGrowTogether) {
  auto below = std::make_shared<CountingAllocator>();
  Segments segments(below, {.least = 4 * kib});
  std::byte* const a = segments.allocate(4 * kib);
  std::byte* const b = segments.allocate(4 * kib);
  segments.deallocate(a, 4 * kib);
  segments.deallocate(b, 4 * kib);
  EXPECT_EQ(segments.stats().largest_free, 4 * kib);  // even if they are neighbours
  segments.trim();
  EXPECT_EQ(below->held, 0u);
  EXPECT_EQ(segments.stats().segments, 0u);
}

TEST(Segments, GiveOutgrownOnesBack) {
  auto below = std::make_shared<CountingAllocator>();
  Segments segments(below, {.least = kib});
  const auto each_size = [&] {
    for (std::size_t bytes = 64 * kib; bytes <= 1024 * kib; bytes += 8 * kib) {
      segments.deallocate(segments.allocate(bytes), bytes);
    }
  };
  each_size();
  EXPECT_LE(below->held, 2 * 1024 * kib);
  const int allocations = below->allocations;
  EXPECT_LE(allocations, 18);  // four for each doubling
  each_size();
  EXPECT_EQ(below->allocations, allocations);
}

/// Above an allocator that is fast, there is one segment at a time, of just the size of the request.
TEST(Segments, AreAsLargeAsTheirRequestsWhereTakingThemIsFast) {
  auto below = std::make_shared<CountingAllocator>();
  Segments segments(below, {.least = kib, .fast_below = true});
  for (const std::size_t size : {64 * kib, 72 * kib, 1000 * kib, 30 * kib, 1001 * kib, kib / 2}) {
    std::byte* const start = segments.allocate(size);
    EXPECT_EQ(segments.stats().segments, 1u) << size;
    segments.deallocate(start, size);
  }
  EXPECT_EQ(below->held, 1001 * kib);
  EXPECT_EQ(below->allocations, 4) << "for 64, 72, 1000 and 1001 KiB";
  std::byte* const small = segments.allocate(kib);
  std::byte* const large = segments.allocate(1002 * kib);  // beside the one in use
  EXPECT_EQ(below->held, 2003 * kib);
  segments.deallocate(large, 1002 * kib);
  segments.deallocate(small, kib);
}

TEST(Segments, ReturnWhatIsUnusedBeforeTheyRefuse) {
  auto below = std::make_shared<CountingAllocator>(100 * kib);
  Segments segments(below, {.least = 64 * kib});
  std::byte* const small = segments.allocate(16 * kib);
  segments.deallocate(small, 16 * kib);
  std::byte* const whole = segments.allocate(100 * kib);  // less than a quarter more is to be had
  EXPECT_EQ(below->held, 100 * kib);
  EXPECT_EQ(error_of<OutOfMemory>([&] { segments.allocate(1); }), "counting: full");
  segments.deallocate(whole, 100 * kib);
  std::byte* const again = segments.allocate(1);
  segments.deallocate(again, 1);
}

/// A pool above holds small pieces, and gives them back when memory runs out.
TEST(Segments, ServeAPool) {
  auto below = std::make_shared<CountingAllocator>(256 * kib);
  const auto segments = std::make_shared<Segments>(below, SegmentsOptions{.least = 64 * kib});
  Pool pool(segments, {.largest_piece = 8 * kib});
  std::vector<std::byte*> pieces;
  for (int i = 0; i < 32; ++i) pieces.push_back(pool.allocate(8 * kib));
  EXPECT_EQ(segments->stats().free, 0u);
  for (std::byte* piece : pieces) pool.deallocate(piece, 8 * kib);
  EXPECT_EQ(segments->stats().in_use, 256 * kib);  // the pool keeps them
  std::byte* const large = pool.allocate(200 * kib);
  EXPECT_EQ(pool.stats().kept, 0u);
  EXPECT_EQ(pool.stats().in_use, 200 * kib);
  EXPECT_NE(error_of<OutOfMemory>([&] {
              pool.allocate(100 * kib);
            }).find("102400 bytes are not to be had; 204800 are in use"),
            std::string::npos);
  pool.deallocate(large, 200 * kib);
  EXPECT_EQ(pool.stats().in_use, 0u);
  EXPECT_EQ(segments->stats().in_use, 0u);  // the pool does not keep it
}

TEST(Segments, OfSmallRequestsAreTheirOwn) {
  auto below = std::make_shared<CountingAllocator>(256 * kib);
  Segments segments(below, {.least = 64 * kib, .small = 8 * kib});
  std::byte* const large = segments.allocate(100 * kib);
  std::byte* const small = segments.allocate(kib);  // and not behind it
  EXPECT_EQ(segments.stats().segments, 2u);
  segments.deallocate(large, 100 * kib);
  std::byte* const larger = segments.allocate(180 * kib);  // in place of it
  EXPECT_EQ(below->held, 64 * kib + 192 * kib);
  // Where there is no memory for a segment, the other ones serve, too.
  std::byte* const more = segments.allocate(60 * kib);
  EXPECT_EQ(below->held, 64 * kib + 192 * kib);
  for (std::byte* start : {small, larger, more}) segments.deallocate(start, 0);
  EXPECT_EQ(segments.stats().free, 64 * kib + 192 * kib);
  EXPECT_EQ(segments.stats().largest_free, 192 * kib);
}

TEST(Segments, NeedAnAllocatorBelow) {
  EXPECT_EQ(error_of<MisuseError>([] { Segments(nullptr); }), "segments: no allocator below; expected one");
}

class SegmentsOfRandomPrograms : public ::testing::TestWithParam<std::size_t> {};

/// Against a list of all blocks in use.
TEST_P(SegmentsOfRandomPrograms, HaveBlocksThatAreApart) {
  const std::size_t small = GetParam();
  const std::uint64_t seed = testing::first_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  auto below = std::make_shared<CountingAllocator>(1024 * kib);
  Segments segments(below, {.least = 128 * kib, .small = small});
  std::map<std::byte*, std::size_t> mine;
  std::size_t refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 64 == 0) segments.trim();
    if (mine.size() > 60 || (!mine.empty() && random() % 2 == 0)) {
      const auto one = std::next(mine.begin(), static_cast<std::ptrdiff_t>(random() % mine.size()));
      segments.deallocate(one->first, one->second);
      mine.erase(one);
      continue;
    }
    const std::size_t bytes = random() % (std::size_t{1} << random() % 20);
    try {
      std::byte* const start = segments.allocate(bytes);
      std::memset(start, 1, bytes);  // AddressSanitizer knows the segments
      const std::size_t size = aligned_size(std::max<std::size_t>(bytes, 1));
      const auto after = mine.lower_bound(start);
      ASSERT_TRUE(after == mine.end() || start + size <= after->first);
      ASSERT_TRUE(after == mine.begin() || std::prev(after)->first + std::prev(after)->second <= start);
      mine.emplace(start, size);
    } catch (const OutOfMemory&) {
      ++refused;
    }
    const SegmentsStats stats = segments.stats();
    ASSERT_EQ(stats.in_use + stats.free, below->held);
  }
  EXPECT_GT(refused, 0u);
  for (const auto& [start, bytes] : mine) segments.deallocate(start, bytes);
  EXPECT_EQ(segments.stats().in_use, 0u);
  segments.trim();
  EXPECT_EQ(below->held, 0u);
}
INSTANTIATE_TEST_SUITE_P(All, SegmentsOfRandomPrograms, ::testing::Values(0, 4 * kib));

TEST(Segments, ServeThreadsAtOnce) {
  auto below = std::make_shared<CountingAllocator>(512 * kib);
  Segments segments(below, {.least = 64 * kib});
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<std::byte*, std::size_t>> mine;
    for (int i = 0; i < 20'000; ++i) {
      if (mine.size() > 5 || (!mine.empty() && random() % 2 == 0)) {
        segments.deallocate(mine.back().first, mine.back().second);
        mine.pop_back();
        continue;
      }
      const std::size_t bytes = random() % (100 * kib);
      try {
        mine.emplace_back(segments.allocate(bytes), bytes);
        std::memset(mine.back().first, static_cast<int>(seed), std::min<std::size_t>(bytes, 64));
      } catch (const OutOfMemory&) {
        segments.trim();
      }
    }
    for (const auto& [start, bytes] : mine) segments.deallocate(start, bytes);
  };
  std::thread other(work, 1u);
  work(2u);
  other.join();
  EXPECT_EQ(segments.stats().in_use, 0u);
  EXPECT_EQ(segments.stats().free, below->held);
}

TEST(Segments, TakeTheLargestNumbersAsTheyAreMeant) {
  for (const std::size_t most : {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 2}) {
    Segments segments(host_allocator(), {.least = most, .small = most, .limit = most});
    segments.deallocate(segments.allocate(1000), 1000);
    EXPECT_THROW(segments.allocate(most), OutOfMemory);
    segments.trim();
    EXPECT_EQ(segments.use().cached, 0u);
  }
}

}  // namespace
}  // namespace windrow
