#include <algorithm>
#include <ranges>

#include "data/lines.h"
#include "data/open_data.h"
#include "windrow/models/datasets.h"

namespace windrow {
namespace {

/// Reads one line. Open vertices are kept in a vector, so deep trees do not overflow the stack.
class TreeReader {
 public:
  explicit TreeReader(const Line& line) : whole_line_(line), line_(line.text()) { tree_.graph.indices["label"]; }

  LabelledTree read() {
    skip_blanks();
    do {
      step();
      skip_blanks();
    } while (!open_.empty());
    if (at_ < line_.size()) refuse(shown(line_[at_]) + " after the tree; expected the end of the line");
    return std::move(tree_);
  }

 private:
  struct Open {
    std::int32_t label;
    std::size_t begin;  // of its bracket, for errors
    std::string_view word;
    std::vector<std::int32_t> children;
  };

  void step() {
    if (at_ == line_.size()) refuse("the line ends inside a tree; expected ')'");
    const char c = line_[at_];
    if (c == '(') {
      open();
    } else if (open_.empty()) {
      refuse(shown(c) + " at the start of a tree; expected '('");
    } else if (c == ')') {
      close();
    } else {
      word();
    }
  }

  void open() {
    if (!open_.empty()) {
      if (!open_.back().word.empty()) refuse("a word and a subtree in one vertex; expected a word or two subtrees");
      if (open_.back().children.size() == 2) refuse("a third subtree; expected ')' after two");
    }
    const std::size_t begin = at_++;
    skip_blanks();
    const std::size_t from = at_;
    const std::string_view label = token();
    const std::string wanted = "; expected a label from 0 to " + std::to_string(tree_labels - 1);
    if (label.empty()) refuse("no label after '('" + wanted);
    if (label.size() != 1 || label[0] < '0' || label[0] >= '0' + tree_labels) {
      at_ = from;
      refuse("label " + shown(label) + wanted);
    }
    open_.push_back({label[0] - '0', begin, {}, {}});
  }

  void word() {
    Open& vertex = open_.back();
    if (!vertex.children.empty()) refuse("a word and a subtree in one vertex; expected a word or two subtrees");
    if (!vertex.word.empty()) refuse("a second word in one vertex; expected ')'");
    vertex.word = token();
  }

  void close() {
    const Open vertex = std::move(open_.back());
    if (vertex.word.empty() && vertex.children.size() != 2) {
      at_ = vertex.begin;
      refuse(vertex.children.empty() ? "a vertex without a word; expected a word or two subtrees"
                                     : "a vertex with one subtree; expected a word or two subtrees");
    }
    open_.pop_back();
    ++at_;
    GraphData& graph = tree_.graph;
    graph.children.insert(graph.children.end(), vertex.children.begin(), vertex.children.end());
    graph.child_begin.push_back(static_cast<std::int32_t>(graph.children.size()));
    graph.indices["label"].push_back(vertex.label);
    tree_.words.emplace_back(vertex.word);
    if (!open_.empty()) open_.back().children.push_back(static_cast<std::int32_t>(tree_.words.size()) - 1);
  }

  void skip_blanks() { at_ = std::min(line_.find_first_not_of(blanks, at_), line_.size()); }
  std::string_view token() {
    const std::size_t end = std::min(line_.find_first_of(" \t\r()", at_), line_.size());
    const std::string_view result = line_.substr(at_, end - at_);
    at_ = end;
    return result;
  }
  [[noreturn]] void refuse(const std::string& why) const { whole_line_.refuse(at_, why); }

  const Line& whole_line_;
  const std::string_view line_;
  std::size_t at_ = 0;
  std::vector<Open> open_;
  LabelledTree tree_;
};

}  // namespace

std::vector<LabelledTree> read_treebank(std::istream& in, const std::string& name) {
  return parse_lines(in, name, "no tree; expected one per line, such as (3 (2 It) (4 works))",
                     [](const Line& line) { return TreeReader(line).read(); });
}

std::vector<LabelledTree> read_treebank(const std::filesystem::path& file) {
  const auto in = open_data(file, "trees, one per line");
  return read_treebank(*in, file.string());
}

std::vector<LabelledTree> with_two_labels(std::vector<LabelledTree> trees) {
  constexpr std::int32_t neutral = tree_labels / 2;
  std::erase_if(trees, [](const LabelledTree& tree) { return tree.graph.indices.at("label").back() == neutral; });
  for (LabelledTree& tree : trees) {
    for (std::int32_t& label : tree.graph.indices.at("label")) label = label == neutral ? -1 : label > neutral;
  }
  return trees;
}

Vocabulary vocabulary_of(const std::vector<LabelledTree>& trees, std::int64_t at_least) {
  return Vocabulary(trees | std::views::transform(&LabelledTree::words) | std::views::join, at_least);
}

GraphData numbered(const LabelledTree& tree, const Vocabulary& vocabulary) {
  GraphData graph = tree.graph;
  std::vector<std::int32_t>& numbers = graph.indices["word"];
  numbers.clear();
  for (const std::string& word : tree.words) numbers.push_back(word.empty() ? -1 : vocabulary.number(word));
  return graph;
}

}  // namespace windrow
