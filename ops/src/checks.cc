#include "checks.h"

#include <string>

#include "windrow/engine/error.h"
#include "windrow/ops/internal/number.h"

namespace windrow {

void throw_bad_index(Index index, Index row, const IndexRange& range) {
  throw MisuseError("index " + std::to_string(index) + " at row " + std::to_string(row) + "; expected " +
                    to_string(range));
}

void throw_bad_target(double target, Index row, Index column) {
  throw MisuseError("target " + shortest_text(static_cast<float>(target)) + " at row " + std::to_string(row) +
                    ", column " + std::to_string(column) + "; expected 0 to 1");
}

void throw_bad_segment(Index begin, Index end, Index row, Index rows) {
  throw MisuseError("segment [" + std::to_string(begin) + ", " + std::to_string(end) + ") at row " +
                    std::to_string(row) + "; expected it within [0, " + std::to_string(rows) + ")");
}

}  // namespace windrow
