// Rows grouped by the row of a table that they belong to.
#include "windrow/ops/internal/row_segments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>

#include "tests/seed.h"

namespace windrow::testing {
namespace {

using Integers = std::vector<std::int32_t>;

/// By a map.
RowSegments oracle(const Integers& row_of) {
  std::map<std::int32_t, Integers> rows;
  for (std::size_t r = 0; r < row_of.size(); ++r) {
    if (row_of[r] >= 0) rows[row_of[r]].push_back(static_cast<std::int32_t>(r));
  }
  RowSegments result;
  for (const auto& [row, of_row] : rows) {
    const auto begin = static_cast<std::int32_t>(result.order.size());
    result.order.insert(result.order.end(), of_row.begin(), of_row.end());
    result.bounds.insert(result.bounds.end(), {row, begin, static_cast<std::int32_t>(result.order.size())});
  }
  return result;
}

TEST(RowSegments, AreThoseThatAMapFindsWhateverTheTableAndTheRows) {
  const unsigned seed = first_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const std::int32_t table : {1, 2, 200, 256, 257, 2048, 2049, 50'000, std::numeric_limits<std::int32_t>::max()}) {
    for (const std::size_t rows : {0u, 1u, 2u, 100u, 1023u, 1024u, 5000u}) {
      Integers row_of(rows);
      for (auto& row : row_of) row = std::uniform_int_distribution<std::int32_t>(-1, table - 1)(random);
      if (rows > 0) row_of.back() = table - 1;
      const RowSegments segments = row_segments(row_of), expected = oracle(row_of);
      ASSERT_EQ(segments.bounds, expected.bounds) << table << " " << rows;
      ASSERT_EQ(segments.order, expected.order) << table << " " << rows;
    }
  }
}

TEST(RowSegments, MayHaveARowOfTheMatrixSeveralTimes) {
  const RowSegments segments = row_segments(Integers{4, 1, -1, 4, 4, -1}, 2);
  EXPECT_EQ(segments.bounds, (Integers{1, 0, 1, 4, 1, 4}));
  EXPECT_EQ(segments.order, (Integers{0, 0, 1, 2}));
}

TEST(RowSegments, AreNoneWhereNoRowBelongsToTheTable) {
  EXPECT_EQ(row_segments(Integers{-1, -7}).bounds, Integers{});
  EXPECT_EQ(row_segments({}).order, Integers{});
}

}  // namespace
}  // namespace windrow::testing
