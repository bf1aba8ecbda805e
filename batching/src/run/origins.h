// The lines of the program that recorded what a minibatch computes. A program does not know the vertex numbers of its
// lazy expressions, so errors name lines instead. Knows no plan and no layout.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

#include "windrow/ops/operator.h"

namespace windrow {

/// "parser.cc:12".
inline std::string line_of(std::source_location from) {
  return std::string(from.file_name()) + ":" + std::to_string(from.line());
}

/// Used by ops when something fails. Threads: all members may be called from any thread.
class Origins {
 public:
  virtual ~Origins() = default;
  /// The lines that recorded the operator for this vertex, such as "parser.cc:12"; for null, the lines of everything
  /// that the vertex computes.
  virtual std::string of(std::int32_t vertex, const Operator* op) const = 0;
  /// The line that recorded the value in a row of a tensor that the minibatch was given.
  virtual std::string of_row(const std::string& tensor, Index row) const = 0;
};

}  // namespace windrow
