// ShortList against std::vector: random calls, and elements that own memory.
#include "windrow/comm/internal/short_list.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>

namespace windrow::comm {
namespace {

template <class T, class Make>
void compare(std::uint64_t seed, Make make) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  ShortList<T> lists[3];
  std::vector<T> expected[3];
  for (int step = 0; step < 500; ++step) {
    const std::size_t a = random() % 3, b = random() % 3;
    switch (random() % 6) {
      case 0:
        lists[a] = lists[b];
        expected[a] = std::vector<T>(expected[b]);
        break;
      case 1:
        if (a == b) break;  // what is moved to itself stays
        lists[a] = std::move(lists[b]);
        expected[a] = std::exchange(expected[b], {});
        break;
      case 2:
        lists[a].clear();
        expected[a].clear();
        break;
      case 3: {
        ShortList<T> moved = std::move(lists[a]);
        EXPECT_TRUE(lists[a].empty());
        lists[a] = ShortList<T>(moved);
        break;
      }
      default:
        lists[a].push_back(make(step));
        expected[a].push_back(make(step));
    }
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_EQ(std::vector<T>(lists[i].begin(), lists[i].end()), expected[i]) << "step " << step;
      ASSERT_EQ(lists[i].size(), expected[i].size());
      ASSERT_EQ(lists[i] == lists[(i + 1) % 3], expected[i] == expected[(i + 1) % 3]);
    }
  }
}

TEST(ShortList, HoldsWhatAVectorHolds) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    compare<int>(seed, [](int i) { return i; });
    compare<std::string>(seed, [](int i) { return "element number " + std::to_string(i); });
    compare<std::shared_ptr<int>>(seed, [](int) { return std::shared_ptr<int>(); });
  }
}

TEST(ShortList, EndsEachElementOnce) {
  const auto counted = std::make_shared<int>(0);
  {
    ShortList<std::shared_ptr<int>> list;
    for (long size = 1; size <= 6; ++size) {
      list.push_back(counted);
      EXPECT_EQ(counted.use_count(), 1 + size);
      ShortList<std::shared_ptr<int>> moved = std::move(list);
      EXPECT_EQ(counted.use_count(), 1 + size);
      list = moved;
      EXPECT_EQ(counted.use_count(), 1 + 2 * size);
    }
    list = {counted};
    EXPECT_EQ(counted.use_count(), 2);
  }
  EXPECT_EQ(counted.use_count(), 1);
}

TEST(ShortList, HoldsWhatCannotBeCopied) {
  ShortList<std::unique_ptr<int>> list;
  for (int size = 1; size <= 6; ++size) {
    list.push_back(std::make_unique<int>(size));
    ShortList<std::unique_ptr<int>> moved = std::move(list);
    ASSERT_EQ(moved.size(), static_cast<std::size_t>(size));
    for (int i = 0; i < size; ++i) EXPECT_EQ(*moved[static_cast<std::size_t>(i)], i + 1);
    list = std::move(moved);
  }
}

}  // namespace
}  // namespace windrow::comm
