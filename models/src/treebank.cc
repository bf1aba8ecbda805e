#include "windrow/models/treebank.h"

#include <algorithm>
#include <fstream>
#include <istream>

namespace windrow {
namespace {

constexpr std::string_view blanks = " \t\r";

/// What a person sees of a character.
std::string shown(char c) {
  if (c > ' ' && c < 127) return std::string("'") + c + "'";
  if (c == ' ' || c == '\t') return "a blank";
  static constexpr char digits[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  return std::string("byte 0x") + digits[byte / 16] + digits[byte % 16];
}

/// Reads one line. Open vertices are kept in a list of its own, so that depth takes no stack.
class TreeReader {
 public:
  TreeReader(const std::string& file, std::size_t line_number, std::string_view line)
      : file_(file), line_number_(line_number), line_(line) {
    tree_.graph.indices["label"];
  }

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
      refuse(shown(c) + " where a tree begins; expected '('");
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
      refuse("label '" + printable(label) + "'" + wanted);
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
  static std::string printable(std::string_view text) {
    std::string result;
    for (char c : text.substr(0, 20)) result += c > ' ' && c < 127 ? c : '?';
    return text.size() > 20 ? result + "..." : result;
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw DataError(file_ + ":" + std::to_string(line_number_) + ":" + std::to_string(at_ + 1) + ": " + why);
  }

  const std::string& file_;
  const std::size_t line_number_;
  const std::string_view line_;
  std::size_t at_ = 0;
  std::vector<Open> open_;
  LabelledTree tree_;
};

}  // namespace

std::vector<LabelledTree> read_treebank(std::istream& in, const std::string& name) {
  if (!in) throw DataError(name + ": cannot be read; expected a stream in a good state");
  std::vector<LabelledTree> trees;
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    if (number == 1 && line.starts_with("\xef\xbb\xbf")) line.replace(0, 3, "   ");
    if (line.find_first_not_of(blanks) != std::string::npos) trees.push_back(TreeReader(name, number, line).read());
  }
  if (in.bad()) throw DataError(name + ": cannot be read to its end");
  if (trees.empty()) throw DataError(name + ":1:1: no tree; expected one a line, such as (3 (2 It) (4 works))");
  return trees;
}

std::vector<LabelledTree> read_treebank(const std::filesystem::path& file) {
  const auto refuse = [&](const std::string& why) {
    throw DataError(file.string() + ": " + why + "; expected a file of trees, one a line");
  };
  std::error_code error;
  if (!std::filesystem::exists(file, error)) refuse("there is no such file");
  // Others, such as pipes, might never end.
  if (!std::filesystem::is_regular_file(file, error)) refuse("is no regular file");
  std::ifstream in(file);
  if (!in) refuse("cannot be opened");
  return read_treebank(in, file.string());
}

Vocabulary::Vocabulary(const std::vector<LabelledTree>& trees, int at_least) {
  std::unordered_map<std::string_view, int> seen;
  for (const LabelledTree& tree : trees) {
    for (const std::string& word : tree.words) {
      if (!word.empty() && ++seen[word] == std::max(at_least, 1)) numbers_.emplace(word, size());
    }
  }
}

std::int32_t Vocabulary::number(std::string_view word) const {
  const auto found = numbers_.find(std::string(word));
  return found == numbers_.end() ? unknown : found->second;
}

GraphData Vocabulary::input(const LabelledTree& tree) const {
  GraphData graph = tree.graph;
  std::vector<std::int32_t>& numbers = graph.indices["word"];
  numbers.clear();
  for (const std::string& word : tree.words) numbers.push_back(word.empty() ? -1 : number(word));
  return graph;
}

}  // namespace windrow
