#include "data/lines.h"

#include <algorithm>
#include <istream>

#include "windrow/training/file_format.h"

namespace windrow {

Lines::Lines(std::istream& in, std::string name, NulBytes nul_bytes)
    : in_(in), name_(std::move(name)), nul_bytes_(nul_bytes) {
  if (!in_) throw DataError(name_ + ": cannot be read; expected a readable stream");
}

bool Lines::next() {
  if (!std::getline(in_, text_)) {
    if (in_.bad()) throw DataError(name_ + ": read error before the end; expected a readable file");
    return false;
  }
  skipped_ = number_++ == 0 && text_.starts_with("\xef\xbb\xbf") ? 3 : 0;
  line_ = std::string_view(text_).substr(skipped_);
  while (line_.ends_with('\r')) line_.remove_suffix(1);
  require_text();
  return true;
}

void Lines::require_text() const {
  const FileFormat format = number_ == 1 ? file_format(text_) : FileFormat{};
  if (!format.name.empty() && !format.text) {
    const std::string remedy = format.remedy.empty() ? "" : "; " + std::string(format.remedy);
    refuse(TextPlace{}, "looks like " + std::string(format.name) + "; expected text in UTF-8" + remedy);
  }
  if (nul_bytes_ == NulBytes::accepted) return;
  if (const std::size_t at = line_.find('\0'); at != std::string_view::npos) {
    refuse(at, "a NUL byte, as in binary files and UTF-16; expected text in UTF-8");
  }
}

bool Lines::next_with_text() {
  while (next()) {
    if (line_.find_first_not_of(blanks) != std::string_view::npos) return true;
  }
  return false;
}

namespace {

[[noreturn]] void refuse_at(const std::string& name, TextPlace place, const std::string& why) {
  throw DataError(name + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) + ": " + why);
}

}  // namespace

void Lines::refuse(TextPlace place, const std::string& why) const { refuse_at(name_, place, why); }

void Line::refuse(std::size_t at, const std::string& why) const {
  refuse_at(name_, {begin_.line, begin_.column + at}, why);
}

TextLines::TextLines(std::istream& in, std::string name, Blank blank, std::string_view head) : name_(std::move(name)) {
  Lines lines(in, name_);
  while (blank == Blank::kept ? lines.next() : lines.next_with_text()) {
    if (parts_.empty() && !head.empty() && lines.line() == head) continue;
    parts_.push_back({text_.size(), lines.line().size(), lines.place(0)});
    text_ += lines.line();
  }
}

std::size_t code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first < 0xc2 || first > 0xf4 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (size == 0 || size > text.size()) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  // Overlong forms, surrogates, and numbers above 0x10ffff.
  const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  return byte(1) < low || byte(1) > high ? 0 : size;
}

std::vector<Token> tokens(std::string_view line) {
  std::vector<Token> result;
  std::size_t at = line.find_first_not_of(blanks);
  while (at != std::string_view::npos) {
    const std::size_t end = std::min(line.find_first_of(blanks, at), line.size());
    result.push_back({line.substr(at, end - at), at});
    at = line.find_first_not_of(blanks, end);
  }
  return result;
}

std::string shown(char c) {
  if (c > ' ' && c < 127) return std::string("'") + c + "'";
  if (c == ' ' || c == '\t') return "a blank";
  static constexpr char digits[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  return std::string("byte 0x") + digits[byte / 16] + digits[byte % 16];
}

std::string shown(std::string_view text) {
  std::string result = "'";
  for (char c : text.substr(0, 20)) result += c > ' ' && c < 127 ? c : '?';
  return result + (text.size() > 20 ? "...'" : "'");
}

}  // namespace windrow
