// The graph LSTM, and enhanced dependencies as its workload: predicts the relation of each word to its head.
#include "networks/graph_lstm.h"

#include <algorithm>
#include <ranges>

#include "training/scores.h"
#include "training/splits.h"
#include "windrow/models/datasets.h"

namespace windrow {

GraphLstm::GraphLstm(Parameters& parameters, GraphLstmSizes sizes)
    : sizes_(sizes),
      words_(parameters.add("words", sizes.vocabulary, sizes.embedding, Initial::uniform(-0.1f, 0.1f))),
      relations_(parameters.add("relations", sizes.relations, 2 * sizes.hidden, Initial::uniform(-0.1f, 0.1f))),
      in_(parameters.add_product("in", sizes.embedding, 3 * sizes.hidden)),
      sum_(parameters.add_product("sum", sizes.hidden, 3 * sizes.hidden)),
      bias_(parameters.add("bias", 1, 3 * sizes.hidden, Initial::zeros())),
      child_(parameters.add_product("child", sizes.hidden, 2 * sizes.hidden)),
      forget_in_(parameters.add_product("forget_in", sizes.embedding, sizes.hidden)),
      head_(parameters.add_product("head", sizes.hidden, sizes.classes)),
      head_bias_(parameters.add("head_bias", 1, sizes.classes, Initial::zeros())) {}

double GraphLstm::flops(std::int64_t vertices, std::int64_t with_children, std::int64_t edges) const {
  const auto h = static_cast<double>(sizes_.hidden), e = static_cast<double>(sizes_.embedding);
  return (6 * h * e + 2 * h * static_cast<double>(sizes_.classes)) * static_cast<double>(vertices) +
         (2 * h * e + 6 * h * h) * static_cast<double>(with_children) + 4 * h * h * static_cast<double>(edges);
}

namespace {

/// The universal part of a relation, which all languages share: "nsubj" of "nsubj:pass".
std::string universal(const std::string& relation) { return relation.substr(0, relation.find(':')); }

/// Numbers of words, labels and relations, from the training set.
struct GraphNumbering {
  Vocabulary words, labels, relations;

  GraphNumbering(const std::vector<DependencySentence>& sentences, VocabularySource& from)
      : words(from.get("words", [&] { return Vocabulary(all_of(sentences, &DependencySentence::forms), 2); })),
        labels(from.get("labels",
                        [&] {
                          const auto names = all_of(sentences, &DependencySentence::relations);
                          return Vocabulary(names | std::views::transform(universal), 1);
                        })),
        relations(from.get("relations", [&] {
          const auto arcs = all_of(sentences, &DependencySentence::enhanced) | std::views::join;
          return Vocabulary(arcs | std::views::transform(&Arc::relation), 2);
        })) {}

  GraphData graph(const DependencySentence& sentence) const {
    GraphData graph = enhanced_graph(sentence, relations);
    for (const std::string& form : sentence.forms) graph.indices["word"].push_back(words.number(form));
    auto& label = graph.indices["label"];
    for (const std::string& relation : sentence.relations) label.push_back(labels.number(universal(relation)));
    label.resize(sentence.forms.size(), -1);  // empty nodes have no basic head
    return graph;
  }
};

Draft draft_of(GraphData graph, const GraphLstm& model) {
  const auto vertices = static_cast<std::int64_t>(graph.child_begin.size()) - 1;
  std::int64_t with_children = 0;
  for (std::size_t v = 0; v + 1 < graph.child_begin.size(); ++v) {
    with_children += graph.child_begin[v] < graph.child_begin[v + 1];
  }
  const double flops = model.flops(vertices, with_children, static_cast<std::int64_t>(graph.children.size()));
  return {.graph = std::move(graph), .units = 1, .flops = flops};
}

Workload make_dag(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  auto sentences = make_split<DependencySentence>(kind, device, options, {read_conllu, read_conllu}, generate_conllu);
  GraphWorkload made(kind, device, options,
                     "6 h e + 2 h labels per vertex, 2 h e + 6 h^2 per vertex with children, 4 h^2 per edge");
  const GraphNumbering numbering(sentences.training, made.vocabularies);
  const GraphLstm model(made.parameters(),
                        {numbering.words.size(), numbering.relations.size(), options.size("embedding"),
                         options.size("hidden"), numbering.labels.size()});
  // For a label that the model does not know, no prediction is right.
  made.set_network(model.function(), [] { return make_accuracy(Vocabulary::unknown + 1); });
  made.workload.embedding = embedding_of(made.parameters(), "words", numbering.words);
  const std::vector<std::string> labels = numbering.labels.words();
  made.workload.named_axes = {rows_of(made.parameters(), "relations", "relations", numbering.relations.words()),
                              columns_of(made.parameters(), "head", "labels", labels),
                              columns_of(made.parameters(), "head_bias", "labels", labels)};
  return with_samples(std::move(made), std::move(sentences),
                      [&](const DependencySentence& sentence) { return draft_of(numbering.graph(sentence), model); });
}

}  // namespace

WorkloadKind dag_kind() {
  return {.name = "dag",
          .about = "graph LSTM, classifies each word's relation to its head (Peng et al. 2017)",
          .sample = "sentence",
          .unit = "sentences",
          .files = {"train.conllu", "dev.conllu"},
          .other_names = {{"*-ud-train.conllu"}, {"*-ud-dev.conllu"}},
          .sizes = {hidden(256), embedding(256)},
          .embeds_words = true,
          .samples = 4096,
          .learning_rate = 0.2,
          .make = make_dag};
}

}  // namespace windrow
