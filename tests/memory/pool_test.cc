#include "windrow/memory/pool.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <random>

#include "tests/engine/support.h"
#include "tests/memory/counting_allocator.h"
#include "tests/seed.h"

namespace windrow::testing {
namespace {

constexpr PoolOptions above_fast = {.below = PoolOptions::Below::fast};

struct CountedPool {
  explicit CountedPool(PoolOptions options = {}, std::size_t capacity = 1024 * mib)
      : below(std::make_shared<CountingAllocator>(capacity)), pool(below, options) {}

  std::byte* take(std::size_t bytes) { return pool.allocate(bytes); }
  void free(std::byte* start, std::size_t bytes) { pool.deallocate(start, bytes); }
  void take_and_free(std::size_t bytes) { free(take(bytes), bytes); }

  std::shared_ptr<CountingAllocator> below;
  Pool pool;
};

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

TEST(Pool, GivesSmallPiecesAgain) {
  CountedPool of;
  std::byte* const first = of.take(1000);
  std::memset(first, 1, 1000);
  of.free(first, 1000);
  std::byte* const second = of.take(1010);
  EXPECT_EQ(first, second);
  EXPECT_EQ(of.below->allocations, 1);
  EXPECT_EQ(of.pool.stats().reused, 1u);
  EXPECT_EQ(of.pool.stats().allocations, 2u);
  EXPECT_EQ(of.pool.stats().in_use, Pool::rounded(1000));
  EXPECT_EQ(of.pool.stats().in_use + of.pool.stats().kept, of.below->held);
  of.free(second, 1010);
  EXPECT_EQ(of.pool.stats().in_use, 0u);
  EXPECT_EQ(of.pool.stats().peak_in_use, Pool::rounded(1000));
}

TEST(Pool, DividesASegmentAndMakesItWholeAgain) {
  CountedPool of;
  of.take_and_free(64 * mib);
  std::byte* const a = of.take(10 * mib);
  std::byte* const b = of.take(20 * mib);
  std::byte* const c = of.take(34 * mib);
  EXPECT_EQ(b, a + 10 * mib);
  EXPECT_EQ(c, b + 20 * mib);
  EXPECT_EQ(of.below->allocations, 1);
  EXPECT_EQ(of.pool.stats().kept, 0u);
  of.free(a, 10 * mib);
  of.free(c, 34 * mib);
  EXPECT_EQ(of.pool.use().largest_cached, 34 * mib);
  EXPECT_NEAR(of.pool.use().fragmentation(), 10.0 / 44, 1e-9);
  of.free(b, 20 * mib);  // joins both
  EXPECT_EQ(of.pool.use().fragmentation(), 0);
  EXPECT_EQ(of.take(64 * mib), a);
  of.free(a, 64 * mib);
  EXPECT_EQ(of.below->allocations, 1);
}

TEST(Pool, NeverJoinsSegments) {
  CountedPool of;
  std::byte* const a = of.take(4 * mib);
  std::byte* const b = of.take(4 * mib);
  of.free(a, 4 * mib);
  of.free(b, 4 * mib);
  EXPECT_EQ(of.pool.use().largest_cached, 4 * mib);  // even if they are neighbours
}

TEST(Pool, GivesOutgrownSegmentsBack) {
  CountedPool of;
  const auto each_size = [&] {
    for (std::size_t bytes = 4 * mib; bytes <= 64 * mib; bytes += mib / 2) of.take_and_free(bytes);
  };
  each_size();
  EXPECT_LE(of.below->held, 2 * 64 * mib);
  const int allocations = of.below->allocations;
  EXPECT_LE(allocations, 18);  // four for each doubling
  each_size();
  EXPECT_EQ(of.below->allocations, allocations);
}

/// There is one large segment at a time, of just the size of the request.
TEST(Pool, TakesSegmentsAsLargeAsRequestsWhereThatIsFast) {
  CountedPool of(above_fast);
  for (const std::size_t size : {64, 72, 1000, 30, 1001, 3}) of.take_and_free(size * mib);
  EXPECT_EQ(of.below->held, 1001 * mib);
  EXPECT_EQ(of.below->allocations, 4) << "for 64, 72, 1000 and 1001 MiB";
  of.pool.trim();
  std::byte* const small = of.take(3 * mib);
  of.take_and_free(102 * mib);  // beside the one in use
  EXPECT_EQ(of.below->held, 105 * mib);
  of.free(small, 3 * mib);
}

TEST(Pool, ServesRequestsUpTo2MiBFromSegmentsOfTheirOwn) {
  CountedPool of({}, 24 * mib);
  std::byte* const large = of.take(10 * mib);
  std::byte* const small = of.take(kib);  // and not behind it
  EXPECT_EQ(of.below->allocations, 2);
  of.free(large, 10 * mib);
  std::byte* const larger = of.take(18 * mib);  // in place of it
  EXPECT_EQ(of.below->held, 2 * mib + 20 * mib);
  std::byte* const shared[] = {of.take(2 * mib), of.take(2 * mib)};  // the second one behind the large one
  EXPECT_EQ(of.below->held, 24 * mib);
  of.free(small, kib);
  of.free(larger, 18 * mib);
  for (std::byte* const start : shared) of.free(start, 2 * mib);
  EXPECT_EQ(of.pool.stats().kept, 24 * mib);
  EXPECT_EQ(of.pool.use().largest_cached, 20 * mib);
}

TEST(Pool, ReturnsToTheAllocatorBelowAllButWhatIsToBeKept) {
  CountedPool of(above_fast);
  for (const std::size_t bytes : {0u, 64u, 300u, 5000u, 100'000u}) of.take_and_free(bytes);
  std::byte* const live = of.take(10 * mib);
  std::byte* const first = of.take(8 * mib);
  of.take_and_free(7 * mib);
  of.free(first, 8 * mib);
  const std::size_t held = of.below->held;
  EXPECT_EQ(of.pool.use().live + of.pool.use().cached, held);
  of.pool.trim(held);
  EXPECT_EQ(of.below->held, held);
  of.pool.trim(9 * mib);
  EXPECT_EQ(of.pool.use().cached, 9 * mib);
  of.pool.trim();
  EXPECT_EQ(of.below->held, 10 * mib);
  of.free(live, 10 * mib);
  std::byte* const piece = of.take(99);
  of.pool.trim();
  EXPECT_EQ(of.below->held, mib) << "a segment that is partly live stays";
  of.free(piece, 99);
  of.pool.trim();
  EXPECT_EQ(of.below->held, 0u);
}

TEST(Pool, ReturnsWhatIsUnusedBeforeItRefuses) {
  for (const bool limited : {true, false}) {
    CountedPool of({.limit = limited ? 9 * mib : unlimited}, limited ? unlimited : 9 * mib);
    EXPECT_EQ(of.pool.use().limit, limited ? 9 * mib : unlimited);
    std::vector<std::byte*> pieces;
    for (int i = 0; i < 8; ++i) pieces.push_back(of.take(256 * kib));
    for (std::byte* const piece : pieces) of.free(piece, 256 * kib);
    of.take_and_free(4 * mib);
    std::byte* const whole = of.take(9 * mib);  // a quarter more is not to be had
    EXPECT_EQ(of.below->most_held, 9 * mib);
    EXPECT_EQ(error_of<OutOfMemory>([&] { of.take(1); }),
              std::string("pool of counting: 64 bytes are not to be had; 9437184 are in use, and ") +
                  (limited ? "64 bytes beside the 9437184 taken would exceed the limit of 9437184" : "counting: full"));
    EXPECT_EQ(of.pool.stats().in_use, 9 * mib);
    of.free(whole, 9 * mib);
    of.take_and_free(1);
  }
}

TEST(Pool, NeedsAnAllocatorBelow) {
  EXPECT_EQ(error_of<MisuseError>([] { Pool(nullptr); }), "pool: no allocator below; expected one");
}

TEST(Pool, TakesNothingInPlaceOfSegmentsThatAreNotBackYet) {
  CountedPool of({.limit = 16 * mib});
  std::byte* const first = of.take(4 * mib);
  of.take_and_free(8 * mib);
  of.free(first, 4 * mib);
  of.below->pause = 20ms;
  std::thread trimmer([&] { of.pool.trim(); });
  while (of.below->deallocations == 0) std::this_thread::yield();  // the first segment is on its way
  std::byte* const whole = of.take(16 * mib);
  trimmer.join();
  EXPECT_EQ(of.below->most_held, 16 * mib);
  of.free(whole, 16 * mib);
}

TEST(Pool, RefusesAtOnceWhatTheLimitDoesNotAdmitBesideWhatIsInUseAndPromised) {
  CountedPool of({.limit = 64 * mib});
  std::byte *const live = of.take(24 * mib), *const large = of.take(24 * mib);
  std::byte *const first = of.take(8 * mib), *const second = of.take(8 * mib);
  of.free(large, 24 * mib);
  of.free(first, 8 * mib);
  of.free(second, 8 * mib);
  std::byte* piece = nullptr;
  std::string errors;
  const auto others_ask = [&] {
    piece = of.take(8 * mib);  // beside 24 MiB in use and 32 promised, which have begun to take the place of others
    for (const std::size_t bytes : {8 * mib, 1024 * mib}) {
      errors += error_of<OutOfMemory>([&] { of.take(bytes); }) + '\n';
    }
  };
  of.below->in_deallocate = [&] {
    if (piece == nullptr) std::jthread(others_ask).join();
  };
  std::byte* const promised = of.take(32 * mib);
  const std::string begin = "pool of counting: ", end = " taken would exceed the limit of 67108864\n";
  const std::string middle = " bytes are not to be had; 33554432 are in use, and ";
  EXPECT_EQ(errors, begin + "8388608" + middle + "8388608 bytes beside the 67108864" + end +  //
                        begin + "1073741824" + middle + "1073741824 bytes beside the 67108864" + end);
  EXPECT_EQ(of.pool.stats().in_use, 64 * mib);
  EXPECT_EQ(of.below->most_held, 64 * mib);
  of.free(live, 24 * mib);
  of.free(piece, 8 * mib);
  of.free(promised, 32 * mib);
}

TEST(Pool, WaitsForFreesOfOtherThreadsBeforeItRefuses) {
  for (const std::chrono::nanoseconds patience :
       {std::chrono::nanoseconds(patience), std::chrono::nanoseconds::max()}) {
    CountedPool of({.limit = 4 * mib, .patience = patience});
    std::byte* const first = of.take(4 * mib);
    Gate begun;
    std::thread other([&] {
      begun.await();
      std::this_thread::sleep_for(10ms);
      of.free(first, 4 * mib);
    });
    begun.open();
    std::byte* const second = of.take(4 * mib);
    other.join();
    of.free(second, 4 * mib);
    // With nothing in use there is nothing to wait for.
    EXPECT_THROW(of.take(4 * mib + 1), OutOfMemory);
  }
  CountedPool hasty({.limit = 4 * mib, .patience = 1ms});
  std::byte* const third = hasty.take(4 * mib);
  EXPECT_THROW(hasty.take(1), OutOfMemory);
  hasty.free(third, 4 * mib);
}

TEST(Pool, TakesTheLargestNumbersAsNoLimit) {
  for (const std::size_t most : {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2 + 1, SIZE_MAX / 2}) {
    CountedPool of({.limit = most});
    of.take_and_free(1000);
    EXPECT_THROW(of.take(most), OutOfMemory);
    EXPECT_THROW(of.take(SIZE_MAX / 4), OutOfMemory);
    EXPECT_EQ(of.pool.stats().in_use, 0u);
  }
}

/// Takes and frees at random, and compares with a list of what it holds.
void use_at_random(CountedPool& of, std::size_t most_held, unsigned seed) {
  SCOPED_TRACE("WINDROW_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  std::map<std::byte*, std::size_t> mine;
  for (int i = 0; i < 10'000; ++i) {
    if (random() % 64 == 0) of.pool.trim(random() % most_held);
    if (mine.size() > 40 || (!mine.empty() && random() % 2 == 0)) {
      const auto one = std::next(mine.begin(), static_cast<std::ptrdiff_t>(random() % mine.size()));
      ASSERT_EQ(*one->first, std::byte(seed));
      of.free(one->first, one->second);
      mine.erase(one);
      continue;
    }
    const std::size_t bytes = random() % (std::size_t{1} << random() % 23);
    try {
      std::byte* const start = of.take(bytes);
      *start = std::byte(seed);
      if (bytes > 0) start[bytes - 1] = std::byte(seed);
      const std::size_t size = aligned_size(std::max<std::size_t>(bytes, 1));
      const auto after = mine.lower_bound(start);
      ASSERT_TRUE(after == mine.end() || start + size <= after->first);
      ASSERT_TRUE(after == mine.begin() || std::prev(after)->first + std::prev(after)->second <= start);
      mine.emplace(start, bytes);
    } catch (const OutOfMemory&) {
    }
    ASSERT_LE(of.below->held, most_held);
    ASSERT_LE(of.pool.stats().in_use, most_held);
  }
  for (const auto& [start, bytes] : mine) of.free(start, bytes);
}

/// Holds pieces of 1 MiB of a pool, and frees one of them when it is asked.
struct Hoard final : Reclaimable {
  explicit Hoard(Pool& from, int pieces) : pool(from) {
    for (int i = 0; i < pieces; ++i) held.push_back(pool.allocate(mib));
  }
  ~Hoard() override {
    while (!held.empty()) reclaim(pool);
  }
  bool reclaim(const Allocator& memory) noexcept override {
    EXPECT_EQ(&memory, &pool);
    ++asked;
    if (held.empty() || keeps) return false;
    pool.deallocate(held.back(), mib);
    held.pop_back();
    return true;
  }

  Pool& pool;
  std::vector<std::byte*> held;
  std::atomic<int> asked = 0;
  std::atomic<bool> keeps = false;
};

TEST(Pool, AsksForMemoryInTurnBeforeARequestFails) {
  CountedPool of({.limit = 4 * mib, .below = PoolOptions::Below::fast});
  const auto one = std::make_shared<Hoard>(of.pool, 2), two = std::make_shared<Hoard>(of.pool, 2);
  of.pool.add_reclaimable(one);
  of.pool.add_reclaimable(two);
  of.pool.add_reclaimable(std::make_shared<Hoard>(of.pool, 0));  // gone
  std::vector<std::byte*> taken = {of.take(mib), of.take(mib)};
  EXPECT_EQ(one->held.size(), 1u);
  EXPECT_EQ(two->held.size(), 1u);
  EXPECT_EQ(one->asked + two->asked, 2);
  taken.push_back(of.take(mib));
  taken.push_back(of.take(mib));
  EXPECT_EQ(error_of<OutOfMemory>([&] { of.take(mib); }),
            "pool of counting: 1048576 bytes are not to be had; 4194304 are in use, and 1048576 bytes beside the "
            "4194304 taken would exceed the limit of 4194304");
  for (std::byte* const start : taken) of.free(start, mib);
}

TEST(Pool, AsksAgainWhileItWaits) {
  CountedPool of({.limit = 2 * mib, .patience = std::chrono::nanoseconds::max(), .below = PoolOptions::Below::fast});
  const auto hoard = std::make_shared<Hoard>(of.pool, 2);
  hoard->keeps = true;
  of.pool.add_reclaimable(hoard);
  std::jthread later([&] {
    while (hoard->asked < 2) std::this_thread::yield();
    hoard->keeps = false;
  });
  of.free(of.take(mib), mib);
  EXPECT_EQ(hoard->held.size(), 1u);
}

TEST(Pool, GivesBlocksThatAreApartAndKeepsItsLimitWhateverThreadsDo) {
  for (const auto below : {PoolOptions::Below::slow, PoolOptions::Below::fast}) {
    for (const unsigned threads : {1u, 4u}) {
      CountedPool of({.limit = 20 * mib, .below = below});
      std::vector<std::thread> others;
      for (unsigned i = 1; i < threads; ++i) {
        others.emplace_back([&, i] { use_at_random(of, 20 * mib, first_seed() + i); });
      }
      use_at_random(of, 20 * mib, first_seed());
      for (std::thread& other : others) other.join();
      EXPECT_EQ(of.pool.stats().in_use, 0u);
      EXPECT_EQ(of.pool.stats().kept, of.below->held);
      EXPECT_GT(of.below->most_held, 16 * mib) << "the limit was not reached";
      of.pool.trim();
      EXPECT_EQ(of.below->held, 0u);
    }
  }
}

}  // namespace
}  // namespace windrow::testing
