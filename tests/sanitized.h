// Whether a sanitizer is enabled. Tests that run the same code at many sizes then use fewer sizes.
#pragma once

namespace windrow::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

}  // namespace windrow::testing
