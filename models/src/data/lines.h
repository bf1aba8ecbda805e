// Lines of text and positions in them, for all readers of data. Knows no format.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "data/parallel_map.h"
#include "windrow/models/data_error.h"

namespace windrow {

/// Characters that separate words. Includes carriage returns, so lines may end as on any system.
inline constexpr std::string_view blanks = " \t\r";

/// A position. Both numbers are from 1; the column counts bytes.
struct TextPlace {
  std::size_t line = 1, column = 1;
};

/// Whether lines may have bytes that no text has.
enum class NulBytes { refused, accepted };

/// Reads a text line by line. Refers to the stream, which must have no other reader.
class Lines {
 public:
  /// Errors mention `name`. Throws DataError if the stream is not good.
  Lines(std::istream& in, std::string name, NulBytes nul_bytes = NulBytes::refused);

  /// Reads the next line; false after the last one. Throws DataError if reading fails, and for what is no text: if it
  /// begins like a compressed file, say, or has a NUL byte that is refused.
  bool next();
  /// Reads the next line that is not blank.
  bool next_with_text();

  /// The current line, without a byte order mark and without its end.
  std::string_view line() const { return line_; }
  /// The position of byte `at` of line(), from 0.
  TextPlace place(std::size_t at) const { return {number_, at + skipped_ + 1}; }
  [[noreturn]] void refuse(TextPlace place, const std::string& why) const;
  [[noreturn]] void refuse(std::size_t at, const std::string& why) const { refuse(place(at), why); }

 private:
  std::istream& in_;
  void require_text() const;

  const std::string name_;
  const NulBytes nul_bytes_;
  std::string text_;
  std::string_view line_;  // refers to text_
  std::size_t number_ = 0;
  std::size_t skipped_ = 0;  // bytes of text_ before line_
};

/// One line of a text. Refers to the text and to its name.
class Line {
 public:
  Line(const std::string& name, std::string_view text, TextPlace begin) : name_(name), text_(text), begin_(begin) {}

  std::string_view text() const { return text_; }
  /// Throws DataError, which names byte `at` of text(), from 0.
  [[noreturn]] void refuse(std::size_t at, const std::string& why) const;

 private:
  const std::string& name_;
  const std::string_view text_;
  const TextPlace begin_;
};

/// Returns parse(line) of each line that is not blank; idle workers parse too if this runs inside an op. Throws the
/// DataError that comes first in the text, and a DataError that says `none` if all lines are blank. A first line that
/// is `head` is skipped.
template <class Parse>
auto parse_lines(std::istream& in, const std::string& name, const std::string& none, Parse parse,
                 std::string_view head = {}) {
  struct Part {
    std::size_t begin, size;
    TextPlace place;
  };
  Lines lines(in, name);
  std::string text;
  std::vector<Part> parts;
  while (lines.next_with_text()) {
    if (parts.empty() && !head.empty() && lines.line() == head) continue;
    parts.push_back({text.size(), lines.line().size(), lines.place(0)});
    text += lines.line();
  }
  if (parts.empty()) lines.refuse(TextPlace{}, none);
  return parallel_map(parts.size(), [&](std::size_t i) {
    const Part& part = parts[i];
    return parse(Line(name, std::string_view(text).substr(part.begin, part.size), part.place));
  });
}

/// A part of a line, and its begin in the line.
struct Token {
  std::string_view text;
  std::size_t at;
};
/// The parts of a line between blanks.
std::vector<Token> tokens(std::string_view line);

/// A printable form of a character and of a text, for errors.
std::string shown(char c);
std::string shown(std::string_view text);

}  // namespace windrow
