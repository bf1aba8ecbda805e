// CRC-32C (Castagnoli), as in iSCSI (RFC 3720) and ext4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace windrow {

/// The checksum of bytes that come in one or more parts. A value.
class Crc32c {
 public:
  void add(std::span<const std::byte> bytes);
  std::uint32_t value() const { return ~state_; }

 private:
  std::uint32_t state_ = ~std::uint32_t{0};
};

std::uint32_t crc32c(std::span<const std::byte> bytes);

/// As eight hexadecimal digits.
std::string checksum_text(std::uint32_t checksum);

}  // namespace windrow
