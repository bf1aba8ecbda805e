// How texts are drawn from a language model.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstddef>
#include <cstdint>

namespace windrow {

/// A value. Each text has random numbers of its own, by the seed and the number of the text.
struct SamplingOptions {
  std::size_t texts = 1;
  std::size_t first = 1;  ///< the number of the first text
  std::uint64_t seed = 1;
  /// Log-probabilities are divided by it before words are drawn; 0 takes the most probable word.
  double temperature = 1;
  std::size_t longest = 100;  ///< words drawn for a text, which ends there if it has not ended before
};

}  // namespace windrow
