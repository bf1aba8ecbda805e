// Decides whether steps overwrite or add. The first part of a sum overwrites, later parts add. Columns that no part
// covers are cleared first.
#pragma once

#include <map>

#include "windrow/batching/internal/plan.h"

namespace windrow {

/// For steps whose places still name roots. Call announce() for every step in order, then all_announced(), then
/// decide() for every step in the same order.
class Writes {
 public:
  explicit Writes(const ir::Program& program) : program_(program) {}

  void announce(const Step& step);
  void all_announced();
  /// The step with its write mode, preceded by a step that clears columns if necessary.
  std::vector<Step> decide(Step step);

 private:
  struct Cover {
    std::vector<char> columns;  // written so far
    bool clear_first = false;   // some part covers both written and unwritten columns, or no part covers some columns
    bool begun = false;
  };
  /// Null if the step writes no sum.
  Cover* cover_of(const Step& step);

  const ir::Program& program_;
  std::map<std::size_t, Cover> covers_;  // by root
};

}  // namespace windrow
