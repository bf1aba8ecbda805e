// The order in which parts of calls move.
#include "part_queue.h"

#include <gtest/gtest.h>

#include <vector>

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

}  // namespace
}  // namespace windrow::testing
