#include "files/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace windrow {
namespace {

static_assert(std::endian::native == std::endian::little, "eight bytes are read as one little-endian word");

using Table = std::array<std::uint32_t, 256>;

/// tables[k][b] is the remainder of byte b followed by k zero bytes. With eight tables, eight bytes take eight
/// independent look-ups (Kounavis and Berry 2005, "slicing-by-8").
constexpr std::array<Table, 8> make_tables() {
  constexpr std::uint32_t polynomial = 0x82f63b78;  // with the bits reversed
  std::array<Table, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ (remainder % 2 == 0 ? 0 : polynomial);
    tables[0][byte] = remainder;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before % 256];
    }
  }
  return tables;
}

constexpr std::array<Table, 8> tables = make_tables();

std::uint32_t add_word(std::uint32_t state, std::uint64_t word) {
  word ^= state;
  std::uint32_t result = 0;
  for (std::size_t k = 0; k < 8; ++k) result ^= tables[7 - k][(word >> (8 * k)) % 256];
  return result;
}

}  // namespace

void Crc32c::add(std::span<const std::byte> bytes) {
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, &bytes[at], 8);
    state_ = add_word(state_, word);
  }
  for (; at < bytes.size(); ++at) {
    state_ = (state_ >> 8) ^ tables[0][(state_ ^ std::to_integer<std::uint32_t>(bytes[at])) % 256];
  }
}

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  Crc32c sum;
  sum.add(bytes);
  return sum.value();
}

std::string checksum_text(std::uint32_t checksum) {
  std::string text;
  for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[(checksum >> shift) % 16];
  return text;
}

}  // namespace windrow
