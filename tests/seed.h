// The first seed of tests with random inputs, which is printed once. The environment variable WINDROW_TEST_SEED sets
// another.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace windrow::testing {

inline unsigned first_seed() {
  static const unsigned seed = [] {
    const char* given = std::getenv("WINDROW_TEST_SEED");
    const unsigned made = given == nullptr ? 1 : static_cast<unsigned>(std::stoul(given));
    std::printf("The first seed of random inputs is %u.\n", made);
    return made;
  }();
  return seed;
}

}  // namespace windrow::testing
