// The first seed of tests with random inputs. The environment variable WINDROW_TEST_SEED sets another.
#pragma once

#include <cstdlib>
#include <string>

namespace windrow::testing {

inline unsigned first_seed() {
  const char* given = std::getenv("WINDROW_TEST_SEED");
  return given == nullptr ? 1 : static_cast<unsigned>(std::stoul(given));
}

}  // namespace windrow::testing
