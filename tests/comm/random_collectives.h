// Shared by tests of collectives. Random programs of them, and what they compute: the same program runs at all members.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include "tests/filled.h"
#include "windrow/comm/communicator.h"

namespace windrow::testing {

/// The text of the error that a wait for the tensor throws; empty if it throws none.
inline std::string error_of(const Tensor& tensor) {
  try {
    tensor.get();
  } catch (const OpError& error) {
    return error.what();
  }
  return "";
}

/// Expects that a wait for the tensor throws an error with this text.
inline void expect_error_of(const Tensor& tensor, const std::string& text,
                            std::source_location at = std::source_location::current()) {
  const std::string error = error_of(tensor);
  if (error.find(text) != std::string::npos) return;
  ADD_FAILURE_AT(at.file_name(), static_cast<int>(at.line())) << "'" << text << "' is not in: " << error;
}

/// Pushes `calls` random collectives, with ops between them, at one member; all members pass the same seed. Returns a
/// function that waits and compares the member's tensors with what a plain simulation of all members computes. Elements
/// are small whole numbers, so sums are exact in any order.
std::function<void()> push_random_collectives(const Communicator& member, unsigned seed, int calls);

/// Pushes maxima of numbers, infinities and NaN, of many sizes and kinds of calls, at one member. Returns a function
/// that waits, and expects NaN where one of the members has it, and otherwise the largest.
std::function<void()> push_maxima_of_nan(const Communicator& member);

}  // namespace windrow::testing
