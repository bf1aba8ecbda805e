#include "checked.h"

#include <cmath>
#include <limits>

#include "windrow/engine/error.h"
#include "windrow/ops/internal/number.h"

namespace windrow {
namespace {

constexpr double largest = std::numeric_limits<float>::max(), smallest = std::numeric_limits<float>::min();

}  // namespace

void require(bool holds, const std::string& what, double value, const char* expected) {
  if (!holds) throw MisuseError(what + " " + shortest_text(value) + "; expected " + expected);
}
void require_not_negative(const std::string& what, double value) {
  require(value >= 0 && value <= largest, what, value, "a number, 0 or more, that a float holds");
}
void require_limit(const std::string& what, double value) {
  require((value >= smallest && value <= largest) || value == std::numeric_limits<double>::infinity(), what, value,
          "more than 0, a number that a float holds or infinity");
}
void require_coefficient(const std::string& what, double value) {
  require(value >= 0 && value < 1, what, value, "0 or more, and less than 1");
}

float as_float(const std::string& what, double value) {
  require(std::abs(value) <= largest, what, value, "a number that a float holds");
  return static_cast<float>(value);
}

}  // namespace windrow
