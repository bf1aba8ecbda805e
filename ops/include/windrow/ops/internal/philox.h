// Philox4x32-10, a counter-based random number generator: random words as a function of a key and a counter.
//
// Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <array>
#include <cstdint>

namespace windrow {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// Four independent uniform words. Distinct counters give distinct results for the same key.
constexpr PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0], b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

constexpr PhiloxKey philox_key(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

/// Converts a word to a uniform number in [0, 1), by its upper 24 bits.
constexpr float unit_uniform(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

/// Converts a word to a uniform number in (0, 1), by its upper 23 bits.
constexpr float open_uniform(std::uint32_t word) { return (static_cast<float>(word >> 9) + 0.5f) * 0x1p-23f; }

}  // namespace windrow
