// The Tree-LSTM, and labelled trees as the workload of all its cells.
#include "windrow/models/tree_lstm.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <sstream>

#include "data/lines.h"
#include "training/scores.h"
#include "training/splits.h"
#include "windrow/models/datasets.h"

namespace windrow {

double TreeLstm::flops(std::int64_t leaves, std::int64_t inner) const {
  const auto h = static_cast<double>(sizes_.hidden), e = static_cast<double>(sizes_.embedding);
  const auto a = static_cast<double>(leaves), b = static_cast<double>(inner);
  return 6 * h * e * a + 16 * h * h * b + 2 * h * static_cast<double>(sizes_.classes) * (a + b);
}

ChildSumTreeLstm::ChildSumTreeLstm(Parameters& parameters, TreeLstmSizes sizes, Children children,
                                   const std::string& name)
    : sizes_(sizes),
      words_(parameters.add(parameter_name(name, "words"), sizes.vocabulary, sizes.embedding,
                            Initial::uniform(-0.1f, 0.1f))),
      in_(parameters.add_product(parameter_name(name, "in"), sizes.embedding, 3 * sizes.hidden)),
      sum_(parameters.add_product(parameter_name(name, "sum"), sizes.hidden, 3 * sizes.hidden)),
      bias_(parameters.add(parameter_name(name, "bias"), 1, 3 * sizes.hidden, Initial::zeros())),
      forget_(parameters.add_product(parameter_name(name, "forget"), sizes.hidden, sizes.hidden)),
      forget_in_(parameters.add_product(parameter_name(name, "forget_in"), sizes.embedding, sizes.hidden)),
      forget_bias_(parameters.add(parameter_name(name, "forget_bias"), 1, sizes.hidden, Initial::constant(1))),
      head_(parameters.add_product(parameter_name(name, "head"), sizes.hidden, sizes.classes)),
      head_bias_(parameters.add(parameter_name(name, "head_bias"), 1, sizes.classes, Initial::zeros())) {
  if (children == Children::sum) return;
  attention_ = {parameters.add_product(parameter_name(name, "attention"), sizes.hidden, sizes.hidden),
                parameters.add_product(parameter_name(name, "attention score"), sizes.hidden, 1)};
}

double ChildSumTreeLstm::flops(std::int64_t leaves, std::int64_t inner, std::int64_t edges) const {
  const auto h = static_cast<double>(sizes_.hidden), e = static_cast<double>(sizes_.embedding);
  const auto a = static_cast<double>(leaves), b = static_cast<double>(inner);
  const double per_edge = 2 * h * h + (attention_ ? 2 * h * h + 2 * h : 0);
  return 6 * h * e * a + 6 * h * h * b + per_edge * static_cast<double>(edges) +
         2 * h * static_cast<double>(sizes_.classes) * (a + b);
}

namespace {

struct TreeShape {
  std::int64_t leaves, inner, edges;
};

TreeShape shape_of(const LabelledTree& tree) {
  const auto vertices = static_cast<std::int64_t>(tree.words.size());
  const auto inner = std::count(tree.words.begin(), tree.words.end(), "");
  return {vertices - inner, inner, static_cast<std::int64_t>(tree.graph.children.size())};
}

struct Cell {
  VertexFunction function;
  std::function<double(const TreeShape&)> flops;
  const char* formula;
};

Cell cell_of(const WorkloadOptions& options, Parameters& parameters, Index vocabulary) {
  const TreeLstmSizes sizes{vocabulary, options.size("embedding"), options.size("hidden"), options.size("classes"),
                            options.dropout};
  if (options.cell != "binary") {
    const bool attends = options.cell == "attention";
    using Children = ChildSumTreeLstm::Children;
    const ChildSumTreeLstm model(parameters, sizes, attends ? Children::attention : Children::sum);
    return {model.function(), [model](const TreeShape& s) { return model.flops(s.leaves, s.inner, s.edges); },
            attends ? "6 h e per leaf, 6 h^2 per inner vertex, 4 h^2 + 2 h per edge, 2 h classes per vertex"
                    : "6 h e per leaf, 6 h^2 per inner vertex, 2 h^2 per edge, 2 h classes per vertex"};
  }
  const TreeLstm model(parameters, sizes);
  return {model.function(), [model](const TreeShape& s) { return model.flops(s.leaves, s.inner); },
          "6 h e per leaf, 16 h^2 per inner vertex, 2 h classes per vertex"};
}

/// Whether a line is meant as a tree of a treebank. That is so if it begins with a bracket and a number twice. It is
/// also so for a bracket and a label, unless the bracket closes before the end of the line, as in "(2 stars) out of 5".
bool is_tree(const std::string& line) {
  const auto next = [&](std::size_t from) { return std::min(line.find_first_not_of(blanks, from), line.size()); };
  const std::size_t begin = next(0);
  if (begin == line.size() || line[begin] != '(') return false;
  const std::size_t label = next(begin + 1);
  const std::size_t end = std::min(line.find_first_not_of("0123456789", label), line.size()), behind = next(end);
  if (end == label) return false;
  const auto digit = [&](std::size_t at) { return at < line.size() && line[at] >= '0' && line[at] <= '9'; };
  if (behind < line.size() && line[behind] == '(' && digit(next(behind + 1))) return true;
  if (behind == end || end > label + 1 || line[label] >= '0' + tree_labels) return false;
  int open = 0;
  for (std::size_t at = begin; at < line.size(); ++at) {
    open += line[at] == '(' ? 1 : line[at] == ')' ? -1 : 0;
    if (open == 0) return line.find_first_not_of(blanks, at + 1) == std::string::npos;
  }
  return true;  // a tree whose end is missing
}

/// The words of a line, with brackets as treebanks write them: as words of their own.
std::vector<std::string> words_and_brackets(const std::string& line) {
  std::string apart;
  for (const char c : line) {
    if (c == '(') {
      apart += " -LRB- ";
    } else if (c == ')') {
      apart += " -RRB- ";
    } else {
      apart += c;
    }
  }
  std::istringstream words(apart);
  return {std::istream_iterator<std::string>(words), {}};
}

/// A binary tree without labels. A line is a tree in brackets, as in a treebank, or only words: then each phrase is a
/// word and the phrase after it.
LabelledTree tree_of(const std::string& line, const std::string& name) {
  std::string text;  // without NUL bytes, which the reader of treebanks refuses
  for (const char c : line) c == '\0' ? text += "\xef\xbf\xbd" : text += c;
  if (!is_tree(text)) {
    const std::vector<std::string> words = words_and_brackets(text);
    if (words.empty()) throw DataError(name + ": no word; expected a sentence, or a tree such as (3 (2 It) (4 works))");
    text.clear();
    for (std::size_t i = 0; i + 1 < words.size(); ++i) text += "(2 (2 " + words[i] + ") ";
    text += "(2 " + words.back() + std::string(words.size(), ')');
  }
  std::istringstream in(text);
  std::vector<LabelledTree> trees = read_treebank(in, name);
  trees.front().graph.indices["label"].assign(trees.front().words.size(), -1);
  return std::move(trees.front());
}

std::vector<std::string> label_names(Index classes) {
  if (classes == 2) return {"negative", "positive"};
  return {"very negative", "negative", "neutral", "positive", "very positive"};
}

/// The words below each vertex.
std::vector<std::string> phrases_of(const LabelledTree& tree) {
  std::vector<std::string> phrases;
  for (std::size_t v = 0; v < tree.words.size(); ++v) {
    std::string& phrase = phrases.emplace_back(tree.words[v]);
    for (auto e = tree.graph.child_begin[v]; e < tree.graph.child_begin[v + 1]; ++e) {
      const auto child = static_cast<std::size_t>(tree.graph.children[static_cast<std::size_t>(e)]);
      phrase += (phrase.empty() ? "" : " ") + phrases[child];
    }
  }
  return phrases;
}

GraphNetwork::Texts texts_of(const Vocabulary& words, std::vector<std::string> labels) {
  return {.labels = std::move(labels), .read = [words](const std::string& line, const std::string& name) {
            const auto tree = std::make_shared<const LabelledTree>(tree_of(line, name));
            GraphNetwork::Texts::Input input{.graph = numbered(*tree, words)};
            input.parts.resize(tree->words.size());
            std::iota(input.parts.begin(), input.parts.end(), 0);
            input.texts_of_parts = [tree] { return phrases_of(*tree); };
            input.whole = input.parts.back();
            return input;
          }};
}

/// Data for the fine-grained or for the binary task.
Split<LabelledTree> trees_of(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  const Index classes = options.size("classes");
  if (classes != 2 && classes != tree_labels) {
    throw MisuseError(kind.name + ": classes " + std::to_string(classes) + "; expected 5, or 2");
  }
  auto trees = make_split<LabelledTree>(kind, device, options, {read_treebank, read_treebank}, generate_treebank);
  if (classes == tree_labels) return trees;
  const std::size_t all = trees.training.size(), validating = trees.validation.size();
  trees.training = with_two_labels(std::move(trees.training));
  trees.validation = with_two_labels(std::move(trees.validation));
  trees.training_source.leave_out(all - trees.training.size(), "with a neutral root");
  trees.validation_source.leave_out(validating - trees.validation.size(), "with a neutral root");
  if (!trees.training.empty() || options.validation_only) return trees;
  const std::string from = options.data.empty() ? kind.name : files_of(kind, options).training.string();
  throw DataError(from + ": the roots of all " + std::to_string(all) +
                  " training trees are neutral; expected at least 1 that is not, for 2 classes");
}

Workload make_tree_lstm(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  Split<LabelledTree> trees = trees_of(kind, device, options);
  GraphWorkload made(kind, device, options, "");
  const Vocabulary words = made.vocabularies.get("words", [&] { return vocabulary_of(trees.training, 2); });
  const Cell cell = cell_of(options, made.parameters(), words.size());
  const std::vector<std::string> labels = label_names(options.size("classes"));
  made.set_network(cell.function, make_root_accuracy);
  made.network->texts = texts_of(words, labels);
  made.workload.formula = cell.formula;
  made.workload.embedding = embedding_of(made.parameters(), "words", words);
  made.workload.named_axes = {columns_of(made.parameters(), "head", "labels", labels, 0),
                              columns_of(made.parameters(), "head_bias", "labels", labels, 0)};
  return with_samples(std::move(made), std::move(trees), [&](const LabelledTree& tree) {
    return Draft{numbered(tree, words), 1, cell.flops(shape_of(tree))};
  });
}

}  // namespace

WorkloadKind tree_lstm_kind() {
  return {.name = "tree-lstm",
          .about = "Tree-LSTM, classifies every vertex of a binary parse tree (Tai et al. 2015)",
          .sample = "tree",
          .unit = "trees",
          .files = {"train.txt", "dev.txt"},
          .sizes = {hidden(256),
                    embedding(256),
                    {"classes", "Sentiment classes: 5, or 2 without neutral phrases and sentences", tree_labels,
                     tree_labels}},
          .cells = {"binary", "child-sum", "attention"},
          .takes_dropout = true,
          .embeds_words = true,
          .samples = 4096,
          .input =
              "words, separated by blanks, or a tree in brackets, such as (3 (2 It) (4 works)), whose labels are "
              "ignored; labels the text, and its phrases with --parts",
          .learning_rate = 0.1,
          .make = make_tree_lstm};
}

}  // namespace windrow
