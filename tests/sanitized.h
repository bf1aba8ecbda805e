// Whether a sanitizer is enabled, and whether it is ThreadSanitizer. Tests that run the same code at many sizes then
// use fewer sizes.
#pragma once

namespace windrow::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

#if defined(__SANITIZE_THREAD__)
constexpr bool thread_sanitized = true;
#else
constexpr bool thread_sanitized = false;
#endif

}  // namespace windrow::testing
