#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>

#include "data/lines.h"
#include "data/open_data.h"
#include "windrow/models/datasets.h"

namespace windrow {
namespace {

/// The id of a word, or of an empty node after that word; empty nodes are numbered from 1.
struct Id {
  std::int32_t word, empty = 0;
  friend auto operator<=>(const Id&, const Id&) = default;
};

std::optional<std::int32_t> number_of(std::string_view text) {
  std::int32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (text.empty() || text[0] == '-' || read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

std::optional<Id> id_of(std::string_view text) {
  const std::size_t dot = text.find('.');
  const auto word = number_of(text.substr(0, dot));
  if (!word) return std::nullopt;
  if (dot == std::string_view::npos) return Id{*word};
  const auto empty = number_of(text.substr(dot + 1));
  if (!empty || *empty == 0) return std::nullopt;
  return Id{*word, *empty};
}

std::string text_of(Id id) {
  return std::to_string(id.word) + (id.empty > 0 ? "." + std::to_string(id.empty) : std::string());
}

/// The columns, with their names in the format.
enum Column : std::size_t { id, form, lemma, upos, xpos, feats, head, deprel, deps, misc, columns };
using Row = std::array<Token, columns>;

Row row_of(const Lines& lines) {
  Row row;
  std::size_t fields = 0, at = 0;
  for (const std::string_view line = lines.line(); at <= line.size(); ++fields) {
    const std::size_t end = std::min(line.find('\t', at), line.size());
    if (fields < columns) row[fields] = {line.substr(at, end - at), at};
    at = end + 1;
  }
  if (fields == columns) return row;
  lines.refuse(0, std::to_string(fields) + (fields == 1 ? " field" : " fields") + "; expected 10, separated by tabs");
}

enum class Trees { required, ignored };

/// Collects the lines of one sentence. References to other lines are checked when all lines are read.
class SentenceReader {
 public:
  SentenceReader(const Lines& lines, Trees trees) : lines_(lines), trees_(trees), begin_(lines.place(0)) {}

  void add_line() {
    const Row row = row_of(lines_);
    const std::string_view number = row[id].text;
    if (number.find('-') != std::string_view::npos) return add_range(row[id]);
    if (number.find('.') != std::string_view::npos) return add_empty(row);
    add_word(row);
  }

  DependencySentence finish() {
    if (words() == 0) lines_.refuse(begin_, "a sentence without words; expected lines that begin with 1, 2, ...");
    if (range_end_ > words()) {
      lines_.refuse(range_, "a range ends with " + std::to_string(range_end_) + "; expected at most " +
                                std::to_string(words()) + ", the last word");
    }
    if (trees_ == Trees::ignored) return std::move(sentence_);
    check_heads();
    check_tree();
    sentence_.forms.insert(sentence_.forms.end(), empty_forms_.begin(), empty_forms_.end());
    sentence_.tags.insert(sentence_.tags.end(), empty_tags_.begin(), empty_tags_.end());
    sentence_.enhanced.resize(sentence_.forms.size());
    for (const EnhancedArc& arc : arcs_) enhance(arc);
    return std::move(sentence_);
  }

 private:
  struct EnhancedArc {
    Id dependent, head;
    std::string relation;
    TextPlace place;
  };

  std::int32_t words() const { return static_cast<std::int32_t>(sentence_.heads.size()); }

  void add_word(const Row& row) {
    const Id next{words() + 1};
    if (id_of(row[id].text) != next) {
      lines_.refuse(row[id].at,
                    "line begins with " + shown(row[id].text) + "; expected " + text_of(next) + ", the next word");
    }
    sentence_.forms.push_back(required(row[form], "form"));
    sentence_.tags.push_back(required(row[upos], "part of speech"));
    if (trees_ == Trees::ignored) {
      sentence_.heads.push_back(0);
      sentence_.relations.emplace_back();
      return;
    }
    const auto number = number_of(row[head].text);
    if (!number) lines_.refuse(row[head].at, "head " + shown(row[head].text) + "; expected the number of a word or 0");
    sentence_.heads.push_back(*number);
    sentence_.relations.push_back(required(row[deprel], "relation"));
    head_places_.push_back(lines_.place(row[head].at));
    add_arcs(next, row[deps]);
  }

  void add_empty(const Row& row) {
    const Id next{words(), last_empty_.word == words() ? last_empty_.empty + 1 : 1};
    if (id_of(row[id].text) != next) {
      lines_.refuse(row[id].at, "empty node " + shown(row[id].text) + "; expected " + text_of(next));
    }
    last_empty_ = next;
    if (trees_ == Trees::ignored) return;
    empty_forms_.push_back(required(row[form], "form"));
    empty_tags_.push_back(required(row[upos], "part of speech"));
    empties_.emplace(next, static_cast<std::int32_t>(empty_forms_.size()));
    add_arcs(next, row[deps]);
  }

  /// Adds the line of a range: several words that are written as one. The lines of these words come after it.
  void add_range(const Token& range) {
    const std::size_t dash = range.text.find('-');
    const auto first = number_of(range.text.substr(0, dash)), last = number_of(range.text.substr(dash + 1));
    const std::int32_t next = words() + 1;
    if (first != next || !last || *last < next || range_end_ >= next) {
      lines_.refuse(range.at, "range " + shown(range.text) + "; expected a range that begins with " +
                                  std::to_string(std::max(next, range_end_ + 1)) + " and ends there or later");
    }
    range_end_ = *last;
    range_ = lines_.place(range.at);
  }

  std::string required(const Token& field, const char* what) const {
    if (field.text.empty()) lines_.refuse(field.at, std::string("no ") + what + "; expected a " + what + " or _");
    return std::string(field.text);
  }

  void add_arcs(Id dependent, const Token& field) {
    if (field.text == "_") return;
    for (std::size_t at = 0; at <= field.text.size();) {
      const std::size_t end = std::min(field.text.find('|', at), field.text.size());
      add_arc(dependent, {field.text.substr(at, end - at), field.at + at});
      at = end + 1;
    }
  }

  void add_arc(Id dependent, const Token& arc) {
    const std::size_t colon = arc.text.find(':');
    const auto from = id_of(arc.text.substr(0, colon));
    if (!from || colon == std::string_view::npos || colon + 1 == arc.text.size()) {
      lines_.refuse(arc.at, "enhanced dependency " + shown(arc.text) + "; expected one such as 4:nsubj, or _ for none");
    }
    if (*from == dependent) lines_.refuse(arc.at, text_of(dependent) + " is its own head; expected another");
    arcs_.push_back({dependent, *from, std::string(arc.text.substr(colon + 1)), lines_.place(arc.at)});
  }

  /// The number of a node: 0 for the root, -1 if there is no such node.
  std::int32_t number(Id of) const {
    if (of.empty == 0) return of.word <= words() ? of.word : -1;
    const auto found = empties_.find(of);
    return found == empties_.end() ? -1 : words() + found->second;
  }

  void enhance(const EnhancedArc& arc) {
    const std::int32_t from = number(arc.head);
    if (from < 0)
      lines_.refuse(arc.place, "head " + text_of(arc.head) + " is not in the sentence; expected a word or 0");
    sentence_.enhanced[static_cast<std::size_t>(number(arc.dependent)) - 1].push_back({from, arc.relation});
  }

  void check_heads() const {
    std::int32_t root = 0;
    for (std::int32_t word = 1; word <= words(); ++word) {
      const std::int32_t from = sentence_.heads[static_cast<std::size_t>(word) - 1];
      const auto refuse = [&](const std::string& why) {
        lines_.refuse(head_places_[static_cast<std::size_t>(word) - 1], why);
      };
      if (from > words()) refuse("head " + std::to_string(from) + "; expected 0 to " + std::to_string(words()));
      if (from == word) refuse("word " + std::to_string(word) + " is its own head; expected another");
      if (from == 0 && root > 0) refuse("a second root; expected one root, word " + std::to_string(root));
      if (from == 0) root = word;
    }
  }

  /// Checks that the heads of each word lead to the root.
  void check_tree() const {
    std::vector<std::size_t> walk(sentence_.heads.size() + 1, 0);  // the last walk that visited a word
    for (std::size_t begin = 1; begin < walk.size(); ++begin) {
      std::size_t word = begin;
      for (; word != 0 && walk[word] == 0; word = static_cast<std::size_t>(sentence_.heads[word - 1])) {
        walk[word] = begin;
      }
      if (word == 0 || walk[word] != begin) continue;
      lines_.refuse(head_places_[word - 1],
                    "the heads form a cycle through word " + std::to_string(word) + "; expected a tree");
    }
  }

  const Lines& lines_;
  const Trees trees_;
  const TextPlace begin_;
  DependencySentence sentence_;         // empty nodes are added after all words
  std::vector<TextPlace> head_places_;  // of words
  std::vector<EnhancedArc> arcs_;
  std::vector<std::string> empty_forms_, empty_tags_;
  std::map<Id, std::int32_t> empties_;  // their numbers, from 1
  Id last_empty_{-1};
  std::int32_t range_end_ = 0;
  TextPlace range_;
};

bool blank(std::string_view line) { return line.find_first_not_of(blanks) == std::string_view::npos; }

/// Reads the sentence that begins with the current line.
DependencySentence read_sentence(Lines& lines, Trees trees) {
  SentenceReader reader(lines, trees);
  do {
    if (!lines.line().starts_with('#')) reader.add_line();
  } while (lines.next() && !blank(lines.line()));
  return reader.finish();
}

std::vector<DependencySentence> read_all(std::istream& in, const std::string& name, Trees trees) {
  Lines lines(in, name);
  std::vector<DependencySentence> sentences;
  while (lines.next_with_text()) {
    // Some files begin with a comment followed by a blank line, which is no sentence.
    if (!lines.line().starts_with('#')) sentences.push_back(read_sentence(lines, trees));
  }
  if (sentences.empty()) lines.refuse(TextPlace{}, "no sentence; expected lines of ten fields in CoNLL-U");
  return sentences;
}

}  // namespace

std::vector<DependencySentence> read_conllu(std::istream& in, const std::string& name) {
  return read_all(in, name, Trees::required);
}

std::vector<DependencySentence> read_unparsed_conllu(std::istream& in, const std::string& name) {
  return read_all(in, name, Trees::ignored);
}

bool is_conllu_line(std::string_view line) {
  const bool number = !line.empty() && line[0] >= '0' && line[0] <= '9';
  return number && std::ranges::count(line, '\t') == columns - 1;
}

std::vector<DependencySentence> read_conllu(const std::filesystem::path& file) {
  const auto in = open_data(file, "sentences in CoNLL-U");
  return read_conllu(*in, file.string());
}

}  // namespace windrow
