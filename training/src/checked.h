// Checks numbers that users pass, at the call: one outside the range of a float would make parameters NaN later.
#pragma once

#include <string>

namespace windrow {

/// Throws MisuseError "WHAT 1e+39; expected EXPECTED" unless it holds.
void require(bool holds, const std::string& what, double value, const char* expected);
/// Throws MisuseError unless the value is 0 or more, and at most the largest float.
void require_not_negative(const std::string& what, double value);
/// Throws MisuseError unless the value is a float above 0, rounded, or infinite.
void require_limit(const std::string& what, double value);
/// Throws MisuseError unless 0 <= value < 1.
void require_coefficient(const std::string& what, double value);

/// The nearest float. Throws MisuseError if it is not finite.
float as_float(const std::string& what, double value);

}  // namespace windrow
