// Whether steps overwrite or add: the first part of a sum that is computed overwrites, later ones add, and columns that
// no part covers are cleared first.
#pragma once

#include <map>

#include "plan/plan.h"

namespace windrow {

/// For steps whose places still name roots. Every step is announced in order, then asked about in the same order.
class Writes {
 public:
  explicit Writes(const ir::Program& program) : program_(program) {}

  void announce(const Step& step);
  void all_announced();
  /// The step with its write, after a step that clears if one must come before it.
  std::vector<Step> decide(Step step);

 private:
  struct Cover {
    std::vector<char> columns;  // written so far
    bool clear_first = false;   // a part would meet columns of which some were written, or some never are
    bool begun = false;
  };
  /// Null if the step writes no sum.
  Cover* cover_of(const Step& step);

  const ir::Program& program_;
  std::map<std::size_t, Cover> covers_;  // by root
};

}  // namespace windrow
