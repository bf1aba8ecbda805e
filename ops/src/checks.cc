#include "checks.h"

#include <locale>
#include <sstream>
#include <string>

#include "windrow/engine/error.h"

namespace windrow {

void throw_bad_index(Index index, Index row, const IndexRange& range) {
  throw MisuseError("index " + std::to_string(index) + " at row " + std::to_string(row) + "; expected " +
                    to_string(range));
}

void throw_bad_target(double target, Index row, Index column) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << "target " << target << " at row " << row << ", column " << column << "; expected 0 to 1";
  throw MisuseError(text.str());
}

void throw_bad_segment(Index begin, Index end, Index row, Index rows) {
  throw MisuseError("segment [" + std::to_string(begin) + ", " + std::to_string(end) + ") at row " +
                    std::to_string(row) + "; expected it within [0, " + std::to_string(rows) + ")");
}

}  // namespace windrow
