// How dropout draws, for kernels: Philox words by seed, site, the row's keys and the column.
//
// Four columns share the words of one counter, which holds the site and the block of columns, 16 bits each, and the
// row's three keys. The key of Philox is the seed, which may be the row's own. A word drops its element where
// unit_uniform(word) < rate.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cmath>
#include <cstdint>

#include "windrow/ops/internal/matrix.h"
#include "windrow/ops/internal/philox.h"

namespace windrow {

inline constexpr Index dropout_width_limit = Index{4} << 16;

/// The key that the index operand of a row determines.
constexpr PhiloxKey seed_of(const std::int32_t* row) {
  return {static_cast<std::uint32_t>(row[3]), static_cast<std::uint32_t>(row[4])};
}

/// An element is dropped if the upper 24 bits of its word are below this.
inline std::uint32_t dropout_threshold(double rate) { return static_cast<std::uint32_t>(std::ceil(rate * 0x1p24)); }

}  // namespace windrow
