// Whether a sanitizer watches: there, tests of the same lines at many sizes take fewer of them.
#pragma once

namespace windrow::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

}  // namespace windrow::testing
