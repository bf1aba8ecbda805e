// Tree-FC, and generated trees as its workload.
#include "windrow/models/internal/tree_fc.h"

#include "data/draws.h"
#include "training/scores.h"
#include "training/splits.h"

namespace windrow {

TreeFc::TreeFc(Parameters& parameters, TreeFcSizes sizes)
    : sizes_(sizes),
      words_(parameters.add("words", sizes.vocabulary, sizes.hidden, Initial::uniform(-0.5f, 0.5f))),
      pair_(parameters.add_product("pair", 2 * sizes.hidden, sizes.hidden)),
      bias_(parameters.add("bias", 1, sizes.hidden, Initial::zeros())),
      head_(parameters.add_product("head", sizes.hidden, sizes.classes)),
      head_bias_(parameters.add("head_bias", 1, sizes.classes, Initial::zeros())) {}

VertexFunction TreeFc::function() const {
  return VertexFunction("tree_fc", {{"leaf", {}, [&](Vertex& v) { (*this)(v, leaf); }},
                                    {"inner", {.arity = 2}, [&](Vertex& v) { (*this)(v, inner); }},
                                    {"root", {.arity = 2}, [&](Vertex& v) { (*this)(v, root); }}});
}

GraphData TreeFc::graph(const std::vector<std::int32_t>& words, std::int32_t label) {
  // Numbered like a heap: the children of vertex v are 2 v + 1 and 2 v + 2.
  const auto leaves = static_cast<std::int32_t>(words.size()), inners = leaves - 1;
  GraphData data;
  data.kinds.assign(static_cast<std::size_t>(inners + leaves), leaf);
  for (std::int32_t v = 0; v < inners + leaves; ++v) {
    if (v < inners) {
      data.kinds[static_cast<std::size_t>(v)] = v == 0 ? root : inner;
      data.children.insert(data.children.end(), {2 * v + 1, 2 * v + 2});
    }
    data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
  }
  auto &word = data.indices["word"], &labels = data.indices["label"];
  word.assign(static_cast<std::size_t>(inners), -1);
  word.insert(word.end(), words.begin(), words.end());
  labels.assign(word.size(), -1);
  labels[0] = label;
  return data;
}

double TreeFc::flops(std::int64_t leaves) const {
  const auto h = static_cast<double>(sizes_.hidden);
  return 4 * h * h * static_cast<double>(leaves - 1) + 2 * h * static_cast<double>(sizes_.classes);
}

namespace {

constexpr std::int32_t leaf_words = 100, classes = 4;

/// Each word belongs to a class. Half of the words of a tree are of the tree's class, the others of any class.
GraphData draw_tree(std::size_t leaves, Draws& draws) {
  const std::int32_t label = draws.below(classes);
  std::vector<std::int32_t> words;
  for (std::size_t leaf = 0; leaf < leaves; ++leaf) {
    const std::int32_t word = draws.below(leaf_words);
    words.push_back(draws.chance(0.5) ? word - word % classes + label : word);
  }
  return TreeFc::graph(words, label);
}

Workload make_tree_fc(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  const Index leaves = options.size("leaves");
  if (leaves < 2) throw MisuseError("tree-fc: leaves " + std::to_string(leaves) + "; expected at least 2");
  GraphWorkload made(kind, device, options, "4 h^2 per inner vertex, 8 h per tree");
  const TreeFc model(made.parameters(), {leaf_words, options.size("hidden"), classes});
  made.set_network(model.function(), [] { return make_accuracy(0); });
  Split<GraphData> trees = generate_split(options, [&](std::size_t count, std::uint64_t seed, const char*) {
    Draws draws(seed);
    std::vector<GraphData> drawn;
    while (drawn.size() < count) drawn.push_back(draw_tree(static_cast<std::size_t>(leaves), draws));
    return drawn;
  });
  return with_samples(std::move(made), std::move(trees), [&](const GraphData& tree) {
    return Draft{tree, 1, model.flops(leaves)};
  });
}

}  // namespace

WorkloadKind tree_fc_kind() {
  return {.name = "tree-fc",
          .about = "fully connected tree network, classifies complete binary trees (Looks et al. 2017)",
          .sample = "tree",
          .unit = "trees",
          .sizes = {hidden(512), {"leaves", "Leaves per tree", 256}},
          .samples = 512,
          .learning_rate = 0.1,
          .make = make_tree_fc};
}

}  // namespace windrow
