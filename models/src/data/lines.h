// Lines of text and their places: what all readers of data share. It knows no format.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/models/data_error.h"

namespace windrow {

/// What separates words. Carriage returns too, so that lines may end as on any system.
inline constexpr std::string_view blanks = " \t\r";

/// Both from 1; the column in bytes.
struct TextPlace {
  std::size_t line = 1, column = 1;
};

/// A text, line by line. Refers to its stream; both have one reader.
class Lines {
 public:
  /// `name` is said in errors. Throws DataError if the stream is in no good state.
  Lines(std::istream& in, std::string name);

  /// Goes on to the next line; false behind the last. Throws DataError if the stream breaks off.
  bool next();
  /// The same for lines that are not blank.
  bool next_with_text();

  /// Without a byte order mark, and without its end.
  std::string_view line() const { return line_; }
  /// Of a byte of line(), from 0.
  TextPlace place(std::size_t at) const { return {number_, at + skipped_ + 1}; }
  [[noreturn]] void refuse(TextPlace place, const std::string& why) const;
  [[noreturn]] void refuse(std::size_t at, const std::string& why) const { refuse(place(at), why); }

 private:
  std::istream& in_;
  const std::string name_;
  std::string text_;
  std::string_view line_;  // of text_
  std::size_t number_ = 0;
  std::size_t skipped_ = 0;  // bytes of text_ before line_
};

/// A part of a line, and where it begins there.
struct Token {
  std::string_view text;
  std::size_t at;
};
/// What is between blanks.
std::vector<Token> tokens(std::string_view line);

/// What a person sees of a character, and of a text.
std::string shown(char c);
std::string shown(std::string_view text);

/// Throws DataError if it is no file, or one that cannot be read; `what` says what was expected in it.
std::ifstream open_text(const std::filesystem::path& file, const std::string& what);

}  // namespace windrow
