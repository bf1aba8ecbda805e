// The elements of pieces as one series of bytes, against a loop over elements.
#include "packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace windrow::comm {
namespace {

/// Pieces of random sizes, some of them empty or with gaps between rows.
struct RandomPieces {
  explicit RandomPieces(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t most) { return static_cast<Index>(random() % most); };
    for (Index count = 1 + below(4); count > 0; --count) {
      const Index rows = below(5), width = below(6), gap = 4 * below(2) * below(3);
      pieces.push_back({nullptr, rows, width, 4 * width + gap});
    }
    for (const Piece& piece : pieces) memory.emplace_back(static_cast<std::size_t>(piece.rows * piece.stride));
    for (std::size_t i = 0; i < memory.size(); ++i) {
      for (std::byte& byte : memory[i]) byte = static_cast<std::byte>(random());
      pieces[i].data = memory[i].data();
    }
    std::size_t all = 0;
    for (const Piece& piece : pieces) all += piece.bytes();
    range.begin = all == 0 ? 0 : 4 * (random() % (all / 4 + 1));
    range.bytes = all == range.begin ? 0 : 4 * (random() % ((all - range.begin) / 4 + 1));
  }
  /// Where each byte of the series lies.
  std::vector<std::byte*> series() const {
    std::vector<std::byte*> places;
    for (const Piece& piece : pieces) {
      for (Index row = 0; row < piece.rows; ++row) {
        for (Index byte = 0; byte < 4 * piece.width; ++byte) places.push_back(piece.data + row * piece.stride + byte);
      }
    }
    return places;
  }

  Pieces pieces;
  std::vector<std::vector<std::byte>> memory;
  ByteRange range{};
};

TEST(Packing, CopiesAnyRange) {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomPieces random(seed);
    const std::vector<std::byte*> series = random.series();
    ASSERT_EQ(4 * elements(random.pieces), series.size());
    std::vector<std::byte> packed(random.range.bytes);
    pack(random.pieces, random.range, packed.data());
    for (std::size_t i = 0; i < packed.size(); ++i) ASSERT_EQ(packed[i], *series[random.range.begin + i]) << i;
    const auto before = random.memory;
    for (std::byte& byte : packed) byte ^= std::byte{1};
    unpack(packed.data(), random.pieces, random.range);
    for (std::size_t i = 0; i < packed.size(); ++i) ASSERT_EQ(packed[i], *series[random.range.begin + i]) << i;
    std::size_t changed = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      for (std::size_t k = 0; k < before[i].size(); ++k) changed += before[i][k] != random.memory[i][k] ? 1 : 0;
    }
    ASSERT_EQ(changed, packed.size());
  }
}

TEST(Packing, FindsRangesThatNeedNoCopy) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomPieces random(seed);
    const std::byte* const place = within(random.pieces, random.range);
    if (place == nullptr || random.range.bytes == 0) continue;
    ++found;
    const std::vector<std::byte*> series = random.series();
    for (std::size_t i = 0; i < random.range.bytes; ++i) ASSERT_EQ(place + i, series[random.range.begin + i]) << i;
  }
  EXPECT_GT(found, 200);
  std::vector<float> one(24);
  const Pieces dense = {{reinterpret_cast<std::byte*>(one.data()), 4, 6, 24}};
  EXPECT_EQ(within(dense, {8, 40}), dense[0].data + 8);
  EXPECT_EQ(within({dense[0], dense[0]}, {88, 16}), nullptr);
}

TEST(Packing, ScalesElementsAndNoGaps) {
  std::vector<float> numbers(12, 3);
  scale({{reinterpret_cast<std::byte*>(numbers.data()), 3, 2, 16}}, 0.5f);
  EXPECT_EQ(numbers, (std::vector<float>{1.5, 1.5, 3, 3, 1.5, 1.5, 3, 3, 1.5, 1.5, 3, 3}));
}

}  // namespace
}  // namespace windrow::comm
