// The name of an op or a variable, as errors and traces show it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace windrow {

/// A value, as cheap as a pointer. From a string literal it costs nothing. Any other string is looked up in a table of
/// the process, which keeps each distinct one for ever: names should tell kinds of ops, not count instances.
class OpName {
 public:
  constexpr OpName() = default;
  template <std::size_t N>
  consteval OpName(const char (&literal)[N]) : text_(literal, N - 1) {}
  OpName(const std::string& text) : text_(keep(text)) {}
  OpName(std::string_view text) : text_(keep(text)) {}

  constexpr std::string_view text() const { return text_; }
  /// The same; ends with a null character.
  constexpr const char* c_str() const { return text_.empty() ? "" : text_.data(); }

 private:
  static std::string_view keep(std::string_view text);

  std::string_view text_;  // lives as long as the process
};

}  // namespace windrow
