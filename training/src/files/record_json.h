// What the reader and the writer of records agree on.
#pragma once

#include <cstddef>

namespace windrow {

/// Bounds on what a reader stores, so that a forged file cannot exhaust the memory or the stack.
constexpr std::size_t most_record_levels = 64, most_record_values = 1'000'000;

/// The texts for numbers that are not finite.
constexpr const char *json_nan = "NaN", *json_infinity = "Infinity", *json_minus_infinity = "-Infinity";

}  // namespace windrow
