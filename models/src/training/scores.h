// The scores of models of graphs. Accuracies need an output "logits", a row of scores for each vertex.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "windrow/models/internal/graph_network.h"

namespace windrow {

/// Counts predictions, and the right ones among them.
struct AnswerCount {
  std::int64_t right = 0, all = 0;

  void add(std::int32_t label, std::int32_t answer) {
    if (label < 0) return;
    ++all;
    right += answer == label;
  }
  /// The share of right answers; 0 without answers.
  double share() const { return all == 0 ? 0 : static_cast<double>(right) / static_cast<double>(all); }
};

/// e to the power of the mean loss per label.
Metric perplexity_of(double mean_loss);
std::unique_ptr<GraphScore> make_perplexity();

/// Requests the predictions ("answers") of a minibatch, and returns a function that waits for them. There is one for
/// each vertex; for vertices without a label, it may be any number.
using PendingAnswers = std::function<std::vector<std::int32_t>()>;
using Answers = std::function<PendingAnswers(const Minibatch&)>;

/// The share of vertices, among those that have a label, whose label has the highest score. Labels below `first` are
/// never predicted.
std::unique_ptr<GraphScore> make_accuracy(Index first);
/// The accuracy for the last vertices of graphs, then the accuracy for all vertices.
std::unique_ptr<GraphScore> make_root_accuracy();
/// The accuracy, and the F1 score of entities. An entity is a run of tags "I-X" with the same X, or begins with "B-X"
/// (Tjong Kim Sang 2002). It is found if an entity of the same words and the same X was predicted.
std::unique_ptr<GraphScore> make_tagging_score(const std::vector<std::string>& tags, Answers answers);

}  // namespace windrow
