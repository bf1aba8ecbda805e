// The scores that there are. Shares of answers need an output "logits", a row of scores for each vertex.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "windrow/models/graph_network.h"

namespace windrow {

/// e to the mean loss of a label.
std::unique_ptr<GraphScore> make_perplexity();

/// The share, among the vertices that have a label, of those whose label has the highest score.
std::unique_ptr<GraphScore> make_accuracy(const char* name);
/// The same of the last vertices of graphs, before that of all.
std::unique_ptr<GraphScore> make_root_accuracy();
/// The accuracy, and F1 of entities as tags by these names mark them: runs of "I-X" of one X, or from "B-X" on (Tjong
/// Kim Sang 2002). Found are those of the same words and the same X.
std::unique_ptr<GraphScore> make_tagging_score(const std::vector<std::string>& tags);

}  // namespace windrow
