#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <unordered_map>
#include <vector>

#include "data/lines.h"
#include "data/open_data.h"
#include "windrow/models/datasets.h"
#include "windrow/models/saved_model.h"
#include "windrow/training/internal/whole_file.h"

namespace windrow {
namespace {

bool is_whole(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Whether a text is a decimal number, such as -0.25, .5, 3 or 1.5e-05, whether or not a number can hold it.
bool is_number(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  const bool decimal = text.find_first_not_of("0123456789.eE+-") == std::string_view::npos;  // no infinity
  return decimal && read.ec != std::errc::invalid_argument && read.ptr == end;
}

bool is_blank(char c) { return c == ' ' || c == '\t'; }

class VectorReader {
 public:
  VectorReader(std::istream& in, const std::string& name, const WordVectorTable& table)
      : in_(in),
        lines_(in, name, NulBytes::accepted),
        table_(table),
        set_(table.numbers.size() / table.width, 0),
        row_(table.width) {}

  WordVectors read() {
    constexpr std::int64_t between_progress = 1024;
    if (!lines_.next()) lines_.refuse(TextPlace{}, "no vector; expected a word and its numbers on each line");
    divide_line();
    if (!take_head()) take_line();
    while (lines_.next()) {
      divide_line();
      if (fields_.size() == 0 && at_end()) break;
      take_or_leave_line();
      if (table_.progress && found_.words % between_progress == 0) report();
    }
    if (found_.words == 0) refuse_line("no vector; expected a word and its numbers on each line");
    return found_;
  }

 private:
  [[noreturn]] void refuse_line(const std::string& why) const { lines_.refuse(0, why); }
  std::string expected() const { return "expected " + std::to_string(table_.width) + ", the width of the table"; }
  bool at_end() { return in_.peek() == std::istream::traits_type::eof(); }
  void report() {
    const auto at = in_.tellg();
    if (at >= 0) table_.progress(static_cast<std::uint64_t>(at));
  }

  /// Takes a first line of word2vec. (A vector of one number looks the same if its word is a number.)
  bool take_head() {
    if (fields_.size() != 2 || !is_whole(fields_[0].text) || !is_whole(fields_[1].text)) return false;
    if (is_blank(lines_.line().front())) return false;  // the vector of a blank
    if (const std::int64_t words = count(fields_[0]); words >= 0) found_.announced = words;
    const std::int64_t width = count(fields_[1]);
    if (width != static_cast<std::int64_t>(table_.width)) {
      lines_.refuse(fields_[1].at, std::to_string(width) + " numbers per word; " + expected());
    }
    return true;
  }
  static std::int64_t count(const Token& field) {
    std::int64_t value = -1;
    std::from_chars(field.text.data(), field.text.data() + field.text.size(), value);
    return value;
  }
  /// Divides the line at its spaces and tabs.
  void divide_line() {
    fields_.clear();
    const std::string_view line = lines_.line();
    for (std::size_t at = 0; at < line.size(); ++at) {
      const std::size_t begin = at;
      while (at < line.size() && !is_blank(line[at])) ++at;
      if (at > begin) fields_.push_back({line.substr(begin, at - begin), begin});
    }
  }

  /// Takes a vector, or counts a line that is no vector. Such a line is damaged or, at the end of the file, cut off.
  void take_or_leave_line() {
    try {
      take_line();
    } catch (const DataError& error) {
      if (found_.words == 0) throw;
      if (found_.left_out++ == 0) found_.first_left_out = error.what();
    }
  }

  void take_line() {
    const std::size_t width = table_.width, size = fields_.size();
    if (size == 0) refuse_line("no word; expected a word and its numbers");
    const bool blank_word = size == width && is_blank(lines_.line().front());
    if (size < width + (blank_word ? 0 : 1)) refuse_line(std::to_string(size - 1) + " numbers; " + expected());
    const std::size_t first = size - width;
    for (std::size_t i = 0; i < width; ++i) row_[i] = number(first + i);
    // Too many numbers on the first line are those of a wider table; later, a word may contain spaces and numbers.
    if (first > 1 && is_number(fields_[first - 1].text) && found_.words == 0) refuse_line(too_many(first));
    const std::int64_t row = blank_word ? -1 : table_.row_of(word_before(first));
    if (row >= 0 && set_[static_cast<std::size_t>(row)] == 0) {
      std::ranges::copy(row_, table_.numbers.begin() + static_cast<std::ptrdiff_t>(row) * std::ssize(row_));
      set_[static_cast<std::size_t>(row)] = 1;
      ++found_.rows;
    }
    ++found_.words;
  }
  std::string too_many(std::size_t first) const {
    std::size_t numbers = table_.width;
    while (first > 1 && is_number(fields_[--first].text)) ++numbers;
    return std::to_string(numbers) + " numbers; " + expected();
  }
  /// The text before a field of the line.
  std::string_view word_before(std::size_t field) const {
    const Token& last = fields_[field - 1];
    return lines_.line().substr(0, last.at + last.text.size());
  }
  float number(std::size_t i) const {
    const auto& [text, at] = fields_[i];
    float value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && std::isfinite(value)) return value;
    if (text.find('\0') != std::string_view::npos) {
      lines_.refuse(at, "a NUL byte in a number, as in binary vectors; expected vectors in text");
    }
    if (!is_number(text)) lines_.refuse(at, shown(text) + "; expected a decimal number");
    if (std::abs(std::strtod(std::string(text).c_str(), nullptr)) < 1) return 0;  // too small for a float
    lines_.refuse(at, shown(text) + "; expected a number within the range of float");
  }

  std::istream& in_;
  Lines lines_;
  const WordVectorTable& table_;
  std::vector<Token> fields_;  // of the current line
  std::vector<char> set_;      // by row
  std::vector<float> row_;     // of the current line
  WordVectors found_;
};

}  // namespace

WordVectors read_word_vectors(std::istream& in, const std::string& name, const WordVectorTable& table) {
  if (table.width < 1 || table.numbers.size() % table.width != 0) {
    throw MisuseError("word vectors: a table of " + std::to_string(table.numbers.size()) + " numbers and width " +
                      std::to_string(table.width) + "; expected whole rows");
  }
  return VectorReader(in, name, table).read();
}

WordVectors read_word_vectors(const std::filesystem::path& file, const WordVectorTable& table) {
  const auto in = open_data(file, "word vectors, one per line", Pipes::accepted);
  return read_word_vectors(*in, file.string(), table);
}

WordVectors set_word_vectors(Workload& workload, const std::filesystem::path& file,
                             const std::function<void(std::uint64_t bytes)>& progress) {
  if (!workload.embedding) {
    throw MisuseError(workload.kind->name + ": word vectors; expected none, because the model embeds no words");
  }
  Tensor value = workload.parameters->value(workload.embedding->table);
  std::unordered_map<std::string_view, std::int64_t> rows;
  const std::vector<std::string>& words = workload.embedding->words;
  for (std::size_t row = 0; row < words.size(); ++row) {
    if (!words[row].empty()) rows.emplace(words[row], static_cast<std::int64_t>(row));
  }
  std::vector<float> numbers = value.get();
  std::string key;
  WordVectors found = read_word_vectors(file, {.width = static_cast<std::size_t>(value.width()),
                                               .numbers = numbers,
                                               .row_of = [&](std::string_view word) -> std::int64_t {
                                                 const auto known = rows.find(word);
                                                 return known == rows.end() ? -1 : known->second;
                                               },
                                               .progress = progress});
  found.of = static_cast<std::int64_t>(rows.size());
  value.set(numbers);
  return found;
}

std::int64_t save_word_vectors(const Workload& workload, const std::filesystem::path& file) {
  if (!workload.embedding) {
    throw MisuseError(workload.kind->name + ": word vectors to save; expected none, because the model embeds no words");
  }
  const Tensor value = workload.parameters->value(workload.embedding->table);
  const std::vector<std::string>& words = workload.embedding->words;
  const std::vector<float> numbers = value.get();
  const auto width = static_cast<std::size_t>(value.width());
  const auto saved = std::ranges::count_if(words, [](const std::string& word) { return !word.empty(); });
  WholeFile to(file);
  std::string line = std::to_string(saved) + " " + std::to_string(width) + "\n";
  for (std::size_t row = 0; row < words.size(); ++row) {
    to.write(line);
    line.clear();
    if (words[row].empty()) continue;
    line = words[row];
    for (const float number : std::span(numbers).subspan(row * width, width)) {
      std::array<char, 32> text{};
      line.append(" ").append(text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr);
    }
    line += "\n";
  }
  to.write(line);
  to.commit();
  return saved;
}

}  // namespace windrow
