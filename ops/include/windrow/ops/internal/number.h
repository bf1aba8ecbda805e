// Numbers that users give: attributes and constants are doubles, but kernels compute with floats.
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
/// Does not become 0 either.
inline bool is_positive_float(double x) {
  return is_float(x) && x >= static_cast<double>(std::numeric_limits<float>::min());
}

/// The value. Throws MisuseError "WHAT 1e+39; expected a number that a float holds". NaN and infinities may be meant;
/// finite numbers that become infinite are not.
double held_by_float(std::string_view what, double value);

}  // namespace windrow
