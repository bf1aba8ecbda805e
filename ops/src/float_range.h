// What a float holds: attributes are doubles, but kernels compute with floats.
#pragma once

#include <cmath>
#include <limits>

namespace windrow::op {

inline bool is_float(double x) { return std::abs(x) <= static_cast<double>(std::numeric_limits<float>::max()); }
/// Does not become 0 either.
inline bool is_positive_float(double x) {
  return is_float(x) && x >= static_cast<double>(std::numeric_limits<float>::min());
}

}  // namespace windrow::op
