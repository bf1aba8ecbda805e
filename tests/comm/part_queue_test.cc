// The order in which parts of calls move.
#include "part_queue.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/seed.h"

namespace windrow::testing {
namespace {

using comm::PartQueue;

std::vector<std::uint64_t> order_of(PartQueue& queue) {
  std::vector<std::uint64_t> order;
  while (const auto part = queue.next()) {
    order.push_back(part->call);
    queue.ended(part->bytes);
  }
  return order;
}

TEST(PartQueue, MovesTheHighestPriorityFirstAndEqualOnesInTheOrderOfCalls) {
  PartQueue queue(100);
  queue.add({.call = 4, .priority = 1, .bytes = 10});
  queue.add({.call = 3, .priority = 0, .bytes = 10});
  queue.add({.call = 1, .priority = 0, .bytes = 10});
  queue.add({.call = 9, .priority = 7, .bytes = 0});
  queue.add({.call = 2, .priority = -5, .bytes = 10});
  EXPECT_EQ(order_of(queue), (std::vector<std::uint64_t>{9, 4, 1, 3, 2}));
}

TEST(PartQueue, ACallOfHigherPriorityWaitsForAPartOnly) {
  PartQueue queue(4);
  queue.add({.call = 0, .priority = 1, .bytes = 10, .part_bytes = 4});
  EXPECT_EQ(queue.next()->call, 0u);
  queue.add({.call = 1, .priority = 2, .bytes = 8, .part_bytes = 4});
  EXPECT_FALSE(queue.next());
  queue.ended(4);
  EXPECT_EQ(order_of(queue), (std::vector<std::uint64_t>{1, 1, 0, 0}));
}

TEST(PartQueue, MovesAllBytesOnceWithinTheWindow) {
  std::mt19937 random(first_seed());
  for (int trial = 0; trial < 100; ++trial) {
    const std::size_t window = 1 + random() % 50;
    PartQueue queue(window);
    std::vector<std::size_t> left(20);
    std::vector<std::size_t> moving;
    std::size_t in_window = 0, lasts = 0, added = 0;
    while (lasts < left.size()) {
      if (added < left.size() && random() % 2 == 0) {
        left[added] = random() % 100;
        queue.add({.call = added,
                   .priority = static_cast<int>(random() % 4),
                   .bytes = left[added],
                   .part_bytes = random() % 40});
        ++added;
      }
      while (const auto part = queue.next()) {
        in_window += part->bytes;
        moving.push_back(part->bytes);
        EXPECT_TRUE(in_window <= window || moving.size() == 1);
        left[part->call] -= part->bytes;
        EXPECT_EQ(part->last, left[part->call] == 0);
        lasts += part->last;
      }
      if (moving.empty()) continue;
      in_window -= moving.back();
      queue.ended(moving.back());
      moving.pop_back();
    }
    EXPECT_EQ(left, std::vector<std::size_t>(20));
  }
}

}  // namespace
}  // namespace windrow::testing
