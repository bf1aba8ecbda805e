#include "files/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace windrow {
namespace {

std::uint32_t sum(const std::string& text) { return crc32c(std::as_bytes(std::span(text))); }

/// The definition: a division, bit by bit.
std::uint32_t slow_sum(const std::string& text) {
  std::uint32_t state = ~std::uint32_t{0};
  for (const char c : text) {
    state ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) state = state % 2 == 0 ? state >> 1 : (state >> 1) ^ 0x82f63b78;
  }
  return ~state;
}

TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(sum(""), 0u);
  EXPECT_EQ(sum("123456789"), 0xe3069283u);
  EXPECT_EQ(sum(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(sum(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32c, EqualsItsDefinitionAtEverySizeAndInParts) {
  std::string text;
  for (int size = 0; size < 70; ++size) {
    EXPECT_EQ(sum(text), slow_sum(text)) << size;
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      Crc32c parts;
      parts.add(std::as_bytes(std::span(text).first(cut)));
      parts.add(std::as_bytes(std::span(text).subspan(cut)));
      EXPECT_EQ(parts.value(), slow_sum(text)) << cut << " of " << size;
    }
    text += static_cast<char>(size * 37 + 11);
  }
}

TEST(Crc32c, IsWrittenWithEightDigits) {
  EXPECT_EQ(checksum_text(0), "00000000");
  EXPECT_EQ(checksum_text(0xe3069283), "e3069283");
}

}  // namespace
}  // namespace windrow
