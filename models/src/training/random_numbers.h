// A random number generator as numbers, for checkpoints.
#pragma once

#include <cstdint>
#include <locale>
#include <random>
#include <span>
#include <sstream>
#include <vector>

#include "windrow/engine/error.h"

namespace windrow {

inline std::vector<std::int64_t> numbers_of(const std::mt19937_64& random) {
  std::stringstream text;  // the state as words, by the standard
  text.imbue(std::locale::classic());
  text << random;
  std::vector<std::int64_t> numbers;
  for (std::uint64_t word; text >> word;) numbers.push_back(static_cast<std::int64_t>(word));
  return numbers;
}

/// Throws MisuseError for numbers that are no generator.
inline std::mt19937_64 random_of(std::span<const std::int64_t> numbers) {
  std::stringstream text;
  text.imbue(std::locale::classic());
  for (const std::int64_t number : numbers) text << static_cast<std::uint64_t>(number) << ' ';
  std::mt19937_64 random;
  text >> random;
  if (!text || numbers_of(random).size() != numbers.size()) {
    throw MisuseError("a random number generator of " + std::to_string(numbers.size()) +
                      " words; expected the state of one");
  }
  return random;
}

}  // namespace windrow
