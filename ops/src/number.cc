#include "windrow/ops/internal/number.h"

#include <array>
#include <charconv>

#include "windrow/engine/error.h"

namespace windrow {
namespace {

template <class Real>
std::string shortest(Real value) {
  if (std::isnan(value)) return "nan";  // its sign is meaningless, and differs between kernels
  std::array<char, 64> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

}  // namespace

std::string shortest_text(double value) { return shortest(value); }
std::string shortest_text(float value) { return shortest(value); }

double held_by_float(std::string_view what, double value) {
  if (is_float(value) || !std::isfinite(value)) return value;
  throw MisuseError(std::string(what) + " " + shortest_text(value) + "; expected a number that a float holds");
}

}  // namespace windrow
