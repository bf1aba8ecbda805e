// The Tree-LSTM, and treebanks as its workload.
#include "windrow/models/tree_lstm.h"

#include <algorithm>

#include "making.h"
#include "scores.h"
#include "windrow/models/treebank.h"

namespace windrow {

double TreeLstm::flops(std::int64_t leaves, std::int64_t inner) const {
  const auto h = static_cast<double>(sizes_.hidden), e = static_cast<double>(sizes_.embedding);
  const auto a = static_cast<double>(leaves), b = static_cast<double>(inner);
  return 6 * h * e * a + 16 * h * h * b + 2 * h * static_cast<double>(sizes_.classes) * (a + b);
}

Workload make_tree_lstm(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  const auto read = [](auto&&... from) { return read_treebank(from...); };
  const Parts<LabelledTree> trees = parts_of(kind, options, read, generate_treebank);
  const Vocabulary words = vocabulary_of(trees.training);
  auto parameters = std::make_unique<Parameters>(device, options.seed);
  const TreeLstm model(*parameters, {words.size(), options.size("embedding"), options.size("hidden"), tree_labels});
  Workload workload{.kind = &kind,
                    .formula = "6 h e a leaf, 16 h^2 an inner vertex, 10 h each",
                    .parameters = std::move(parameters),
                    .function = model.function(),
                    .score = make_root_accuracy};
  add_samples(workload, trees, [&](const LabelledTree& tree) {
    const auto inner = std::count(tree.words.begin(), tree.words.end(), "");
    const auto leaves = static_cast<std::int64_t>(tree.words.size()) - inner;
    return Draft{numbered(tree, words), 1, model.flops(leaves, inner)};
  });
  return workload;
}

}  // namespace windrow
