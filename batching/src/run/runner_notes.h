// A runner's notes about a minibatch until its gradients are computed.
#pragma once

#include <vector>

#include "layout/looked_up.h"

namespace windrow {

struct RunnerNotes {
  /// A given tensor: its number of rows, and the parts of its gradient once backward ops are pushed.
  struct GivenTensor {
    Index rows;
    std::vector<LookedUp> lookups = {};
  };
  std::vector<GivenTensor> given;
  /// By output: whether its gradient has the announced rows instead of one row for each vertex.
  std::vector<char> announced_rows;
  /// Whether the gradients were pushed.
  bool differentiated = false;
};

}  // namespace windrow
