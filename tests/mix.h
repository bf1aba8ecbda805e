// Mixes two numbers into one, for programs whose result depends on the order of all their steps.
#pragma once

#include <cstdint>

namespace windrow::testing {

constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x7f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 27);
}

}  // namespace windrow::testing
