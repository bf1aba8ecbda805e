// How dropout draws: Philox words by seed, site, the row's keys and the column.
#pragma once

#include "windrow/ops/operator.h"
#include "windrow/ops/philox.h"

namespace windrow {

/// Four columns share the words of one counter, which holds the site and the block of columns, 16 bits each, and the
/// row's three keys.
inline PhiloxCounter dropout_words(const Attributes& dropout, const std::int32_t* keys, Index block) {
  const auto site = static_cast<std::uint32_t>(dropout.sizes[1]);
  return philox({site << 16 | static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(keys[0]),
                 static_cast<std::uint32_t>(keys[1]), static_cast<std::uint32_t>(keys[2])},
                philox_key(static_cast<std::uint64_t>(dropout.sizes[0])));
}

inline constexpr Index dropout_width_limit = Index{4} << 16;

}  // namespace windrow
