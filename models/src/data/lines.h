// Lines of text and positions in them, for all readers of data. Knows no format.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "data/parallel_map.h"
#include "windrow/models/datasets.h"

namespace windrow {

/// Characters that separate words. Includes carriage returns, so lines may end as on any system.
inline constexpr std::string_view blanks = " \t\r";

/// A position. Both numbers are from 1; the column counts bytes.
struct TextPlace {
  std::size_t line = 1, column = 1;
};

/// Whether lines may contain NUL bytes, which no text has.
enum class NulBytes { refused, accepted };

/// Reads a text line by line. Refers to the stream, which must have no other reader.
class Lines {
 public:
  /// Errors mention `name`. Throws DataError if the stream is not good.
  Lines(std::istream& in, std::string name, NulBytes nul_bytes = NulBytes::refused);

  /// Reads the next line; false after the last one. Throws DataError if reading fails, and if the data are no text: for
  /// example, if they begin like a compressed file or have a NUL byte that is refused.
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
  /// Throws DataError, which names the place of byte `at` of text(), from 0.
  [[noreturn]] void refuse(std::size_t at, const std::string& why) const;

 private:
  const std::string& name_;
  const std::string_view text_;
  const TextPlace begin_;
};

/// All lines of a text, in memory.
class TextLines {
 public:
  enum class Blank { left_out, kept };
  /// Errors mention `name`. Leaves out the first line if it is `head`. Throws as Lines does.
  TextLines(std::istream& in, std::string name, Blank blank = Blank::left_out, std::string_view head = {});

  const std::string& name() const { return name_; }
  std::size_t size() const { return parts_.size(); }
  Line operator[](std::size_t i) const {
    const auto& [begin, size, place] = parts_[i];
    return Line(name_, std::string_view(text_).substr(begin, size), place);
  }

 private:
  struct Part {
    std::size_t begin, size;
    TextPlace place;
  };

  const std::string name_;
  std::string text_;
  std::vector<Part> parts_;
};

/// Returns parse(line) of each line that is not blank; idle workers parse too if this runs inside an op. Throws the
/// DataError that comes first in the text, and one with the text `none` if all lines are blank. Skips the first line if
/// it is `head`.
template <class Parse>
auto parse_lines(std::istream& in, const std::string& name, const std::string& none, Parse parse,
                 std::string_view head = {}) {
  const TextLines lines(in, name, TextLines::Blank::left_out, head);
  if (lines.size() == 0) Line(name, {}, {}).refuse(0, none);
  return parallel_map(lines.size(), [&](std::size_t i) { return parse(lines[i]); });
}

/// A part of a line, and its begin in the line.
struct Token {
  std::string_view text;
  std::size_t at;
};
/// The parts of a line between blanks.
std::vector<Token> tokens(std::string_view line);

/// The number of bytes of the code point at the begin of a text, which is not empty; 0 if there is none (RFC 3629).
std::size_t code_point(std::string_view text);

/// A printable form of a character and of a text, for errors.
std::string shown(char c);
std::string shown(std::string_view text);

}  // namespace windrow
