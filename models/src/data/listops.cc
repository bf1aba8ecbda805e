#include <algorithm>
#include <numeric>

#include "data/lines.h"
#include "data/open_data.h"
#include "windrow/models/datasets.h"

namespace windrow {
namespace {

constexpr std::int32_t first_operator = 10;

std::int32_t median(std::span<const std::int32_t> arguments) {
  std::vector<std::int32_t> sorted(arguments.begin(), arguments.end());
  std::sort(sorted.begin(), sorted.end());
  return (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
}

/// The symbol of an operator; -1 if there is none of that name.
std::int32_t operator_symbol(std::string_view name) {
  const auto found = std::find(listops_operators.begin(), listops_operators.end(), name);
  if (found == listops_operators.end()) return -1;
  return first_operator + static_cast<std::int32_t>(found - listops_operators.begin());
}

bool is_digit(std::string_view text) { return text.size() == 1 && text[0] >= '0' && text[0] <= '9'; }

/// Reads one line. Open lists and brackets are kept in vectors, so deep trees do not overflow the stack.
class ListReader {
 public:
  explicit ListReader(const Line& line) : whole_line_(line), line_(line.text()) {
    symbols_ = &tree_.graph.indices["symbol"];
    labels_ = &tree_.graph.indices["label"];
  }

  ListOpsTree read() {
    const std::size_t tab = line_.find('\t');
    // The value comes first in the published format, and last in Long Range Arena.
    const bool value_first =
        tab == std::string_view::npos || line_.find('[') > tab || line_.find('[', tab) != line_.npos;
    if (tab != std::string_view::npos) (value_first ? at_ = tab + 1 : end_ = tab);
    for (skip_blanks(); at_ < end_; skip_blanks()) step(next());
    if (!lists_.empty()) whole_line_.refuse(at_, "the line ends inside a list; expected ']'");
    if (finished_.empty()) whole_line_.refuse(at_, "no tree; expected a list such as [MAX 2 9 ], or a digit");
    if (!round_.empty()) whole_line_.refuse(at_, "the line ends inside parentheses; expected ')'");
    tree_.value = labels_->back();
    if (tab != std::string_view::npos) check_value(value_first ? 0 : tab + 1, value_first ? tab : line_.size());
    return std::move(tree_);
  }

 private:
  struct List {
    std::int32_t symbol;
    std::size_t begin;      // of its bracket, for errors
    std::size_t arguments;  // their begin in finished_
  };

  void step(const Token& token) {
    const char c = token.text[0];
    if (c == '(') return round_.push_back(token.at);
    if (c == ')') return close_round(token);
    if (c == ']') return close(token);
    if (lists_.empty() && !finished_.empty()) {
      whole_line_.refuse(token.at, shown(token.text) + " after the tree; expected the end of the line");
    }
    if (c == '[') return open(token);
    if (!is_digit(token.text)) whole_line_.refuse(token.at, shown(token.text) + "; expected a digit, a list, or ']'");
    add(c - '0', c - '0');
  }

  void close_round(const Token& token) {
    if (round_.empty()) whole_line_.refuse(token.at, "')' without '('; expected matching parentheses");
    round_.pop_back();
  }

  void open(const Token& token) {
    const std::int32_t symbol = operator_symbol(token.text.substr(1));
    if (symbol < 0) whole_line_.refuse(token.at, shown(token.text) + "; expected [MAX, [MIN, [MED or [SM");
    lists_.push_back({symbol, token.at, finished_.size()});
  }

  void close(const Token& token) {
    if (lists_.empty()) whole_line_.refuse(token.at, "']' outside a list; expected a list such as [MAX 2 9 ]");
    const List list = lists_.back();
    const auto arguments = std::span<const std::int32_t>(finished_).subspan(list.arguments);
    if (arguments.empty()) whole_line_.refuse(list.begin, "a list without arguments; expected digits or lists");
    values_.clear();
    for (const std::int32_t argument : arguments) values_.push_back((*labels_)[static_cast<std::size_t>(argument)]);
    tree_.graph.children.insert(tree_.graph.children.end(), arguments.begin(), arguments.end());
    finished_.resize(list.arguments);
    lists_.pop_back();
    add(list.symbol, listops_value(list.symbol, values_));
  }

  /// Adds a vertex. Its children are those appended to the graph since the last vertex.
  void add(std::int32_t symbol, std::int32_t label) {
    tree_.graph.child_begin.push_back(static_cast<std::int32_t>(tree_.graph.children.size()));
    finished_.push_back(static_cast<std::int32_t>(labels_->size()));
    symbols_->push_back(symbol);
    labels_->push_back(label);
  }

  /// Checks the stated value, which lies between these places.
  void check_value(std::size_t begin, std::size_t end) const {
    const std::string_view field = line_.substr(begin, end - begin);
    const std::vector<Token> stated = tokens(field);
    if (stated.size() != 1 || !is_digit(stated[0].text)) {
      whole_line_.refuse(begin,
                         "value " + shown(field) + (begin == 0 ? " before" : " behind") + " the tab; expected 0 to 9");
    }
    if (stated[0].text[0] - '0' == tree_.value) return;
    whole_line_.refuse(begin + stated[0].at, "value " + std::string(stated[0].text) + "; expected " +
                                                 std::to_string(tree_.value) + ", the value of the tree");
  }

  void skip_blanks() { at_ = std::min(line_.find_first_not_of(blanks, at_), end_); }

  /// Reads the next token. Brackets need no blanks around them.
  Token next() {
    const std::size_t begin = at_;
    at_ = std::min(line_.find_first_of(" \t\r()[]", begin + 1), line_.size());
    if (line_[begin] == '(' || line_[begin] == ')' || line_[begin] == ']') at_ = begin + 1;
    return {line_.substr(begin, at_ - begin), begin};
  }

  const Line& whole_line_;
  const std::string_view line_;
  std::size_t at_ = 0, end_ = line_.size();  // of the tree
  std::vector<std::size_t> round_;           // positions of open round brackets
  std::vector<List> lists_;                  // open lists
  std::vector<std::int32_t> finished_;       // finished vertices that are not in a finished list yet
  std::vector<std::int32_t> values_;         // of the arguments of the current list
  ListOpsTree tree_;
  std::vector<std::int32_t>* symbols_;  // of tree_
  std::vector<std::int32_t>* labels_;
};

}  // namespace

std::int32_t listops_value(std::int32_t symbol, std::span<const std::int32_t> arguments) {
  switch (symbol - first_operator) {
    case 0:
      return *std::max_element(arguments.begin(), arguments.end());
    case 1:
      return *std::min_element(arguments.begin(), arguments.end());
    case 2:
      return median(arguments);
    default:
      return static_cast<std::int32_t>(std::accumulate(arguments.begin(), arguments.end(), std::int64_t{0}) % 10);
  }
}

std::vector<ListOpsTree> read_listops(std::istream& in, const std::string& name) {
  return parse_lines(
      in, name, "no tree; expected one per line, such as 9, a tab and [MAX 2 9 ]",
      [](const Line& line) { return ListReader(line).read(); }, "Source\tTarget");
}

std::vector<ListOpsTree> read_listops(const std::filesystem::path& file) {
  const auto in = open_data(file, "ListOps trees, one per line");
  return read_listops(*in, file.string());
}

}  // namespace windrow
