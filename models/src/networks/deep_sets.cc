// Deep Sets, and ListOps as their workload.
#include "networks/deep_sets.h"

#include <algorithm>
#include <sstream>

#include "training/scores.h"
#include "training/splits.h"
#include "windrow/models/datasets.h"

namespace windrow {

DeepSets::DeepSets(Parameters& parameters, DeepSetsSizes sizes)
    : sizes_(sizes),
      digits_(parameters.add("digits", sizes.symbols, sizes.hidden, Initial::uniform(-1, 1))),
      operations_(parameters.add("operations", sizes.symbols, 2 * sizes.hidden, Initial::uniform(-0.5f, 0.5f))),
      argument_(parameters.add_product("argument", sizes.hidden, sizes.hidden)),
      set_(parameters.add_product("set", sizes.hidden, sizes.hidden)),
      out_(parameters.add_product("out", sizes.hidden, sizes.hidden)),
      head_(parameters.add_product("head", sizes.hidden, sizes.classes)),
      head_bias_(parameters.add("head_bias", 1, sizes.classes, Initial::zeros())) {}

VertexFunction DeepSets::function() const {
  return VertexFunction("deep_sets", {{"digit", {}, [&](Vertex& v) { (*this)(v, digit); }},
                                      {"list", {.arity = any_arity}, [&](Vertex& v) { (*this)(v, list); }}});
}

double DeepSets::flops(std::int64_t lists, std::int64_t arguments) const {
  const auto h = static_cast<double>(sizes_.hidden);
  return 2 * h * h * static_cast<double>(arguments) +
         (4 * h * h + 2 * h * static_cast<double>(sizes_.classes)) * static_cast<double>(lists);
}

namespace {

/// Adds the kinds of vertices. Removes the labels of digits, whose values are their inputs.
GraphData with_kinds(GraphData graph) {
  auto& labels = graph.indices["label"];
  for (std::size_t v = 0; v < labels.size(); ++v) {
    const bool list = graph.child_begin[v] < graph.child_begin[v + 1];
    graph.kinds.push_back(list ? DeepSets::list : DeepSets::digit);
    if (!list) labels[v] = -1;
  }
  return graph;
}

/// Texts of the vertices, as they are read.
std::vector<std::string> texts_of(const ListOpsTree& tree) {
  std::vector<std::string> texts;
  const std::vector<std::int32_t>& symbols = tree.graph.indices.at("symbol");
  for (std::size_t v = 0; v < symbols.size(); ++v) {
    constexpr std::int32_t digits = 10;
    if (symbols[v] < digits) {
      texts.push_back(std::to_string(symbols[v]));
      continue;
    }
    std::string text = "[" + std::string(listops_operators[static_cast<std::size_t>(symbols[v] - digits)]);
    for (auto e = tree.graph.child_begin[v]; e < tree.graph.child_begin[v + 1]; ++e) {
      text += " " + texts[static_cast<std::size_t>(tree.graph.children[static_cast<std::size_t>(e)])];
    }
    texts.push_back(text + " ]");
  }
  return texts;
}

GraphNetwork::Texts::Input input_of(const std::string& line, const std::string& name) {
  std::istringstream in(line);
  const auto tree = std::make_shared<const ListOpsTree>(std::move(read_listops(in, name).front()));
  GraphNetwork::Texts::Input input{.graph = with_kinds(tree->graph)};
  const std::vector<std::int32_t>& kinds = input.graph.kinds;
  if (kinds.back() != DeepSets::list) {
    throw DataError(name + ": " + texts_of(*tree).back() + " is a digit; expected a list, such as [MAX 2 9 ]");
  }
  for (std::size_t v = 0; v < kinds.size(); ++v) {
    if (kinds[v] == DeepSets::list) input.parts.push_back(static_cast<std::int32_t>(v));
  }
  input.texts_of_parts = [tree, lists = input.parts] {
    const std::vector<std::string> all = texts_of(*tree);
    std::vector<std::string> texts;
    for (const std::int32_t list : lists) texts.push_back(all[static_cast<std::size_t>(list)]);
    return texts;
  };
  input.whole = input.parts.back();
  return input;
}

Workload make_listops(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  const auto generate = [](std::size_t trees, std::uint64_t seed) { return generate_listops(trees, seed); };
  auto trees = make_split<ListOpsTree>(kind, device, options, {read_listops, read_listops}, generate);
  GraphWorkload made(kind, device, options, "2 h^2 per argument, 4 h^2 + 20 h per list");
  const DeepSets model(made.parameters(), {listops_symbols, options.size("hidden"), listops_labels});
  made.set_network(model.function(), make_root_accuracy);
  made.network->texts = {.labels = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, .read = input_of};
  return with_samples(std::move(made), std::move(trees), [&](const ListOpsTree& tree) {
    const GraphData graph = with_kinds(tree.graph);
    const auto lists = std::count(graph.kinds.begin(), graph.kinds.end(), DeepSets::list);
    return Draft{graph, 1, model.flops(lists, static_cast<std::int64_t>(graph.children.size()))};
  });
}

}  // namespace

WorkloadKind listops_kind() {
  return {.name = "listops",
          .about = "Deep Sets, computes the values of nested lists (Nangia and Bowman 2018)",
          .sample = "tree",
          .unit = "trees",
          .files = {"train_d20s.tsv", "test_d20s.tsv"},
          .other_names = {{"basic_train.tsv"}, {"basic_val.tsv"}},
          .sizes = {hidden(128)},
          .samples = 4096,
          .input = "a nested list, such as [MAX 2 9 [MIN 4 7 ] ]; finds its value",
          .learning_rate = 0.03,
          .make = make_listops};
}

}  // namespace windrow
