// Checks numbers that users pass: attributes and constants are doubles, but kernels compute with floats.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>

namespace windrow {

/// The shortest decimal that is read back as this number.
std::string shortest_text(double value);
std::string shortest_text(float value);

inline bool is_float(double x) { return std::abs(x) <= static_cast<double>(std::numeric_limits<float>::max()); }
/// Whether it is positive also as a float, and not rounded to 0.
inline bool is_positive_float(double x) {
  return is_float(x) && x >= static_cast<double>(std::numeric_limits<float>::min());
}

/// The value. Throws MisuseError "WHAT 1e+39; expected a number that a float holds". Accepts NaN and infinities,
/// because these may be intended, but no finite numbers that become infinite.
double held_by_float(std::string_view what, double value);

}  // namespace windrow
