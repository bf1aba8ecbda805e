// The scores that there are. Those of labels need an output "logits", a row of scores for each vertex.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "windrow/models/workload.h"

namespace windrow {

/// The share, among the vertices that have a label, of those whose label has the highest score.
std::unique_ptr<Score> make_accuracy(const char* name);
/// The same of the last vertices of graphs, before that of all.
std::unique_ptr<Score> make_root_accuracy();

}  // namespace windrow
