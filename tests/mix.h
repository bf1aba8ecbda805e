// Mixes two numbers into one, for programs whose result depends on the order of all their steps.
#pragma once

#include <cstdint>
#include <string_view>

namespace windrow::testing {

constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x7f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 27);
}

/// Of a text, to compare all of a long one.
constexpr std::uint64_t digest(std::string_view text) {
  std::uint64_t mixed = text.size();
  for (const char letter : text) mixed = mix(mixed, static_cast<unsigned char>(letter));
  return mixed;
}

}  // namespace windrow::testing
