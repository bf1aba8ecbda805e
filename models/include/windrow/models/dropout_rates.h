// Rates of dropout that models share.
#pragma once
#include "windrow/engine/requirements.h"

#include "windrow/batching/expression_operators.h"

namespace windrow {

/// A value.
struct DropoutRates {
  double element = 0;  ///< of elements
  double word = 0;     ///< of words as a whole

  /// The embedding of a word, with both.
  auto of_word(const auto& embedded) const {
    return dropout(dropout(embedded, {.rate = word, .of = Dropout::Of::row}), {.rate = element});
  }
};

}  // namespace windrow
