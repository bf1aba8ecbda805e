// The name of an op or a variable, as errors and traces show it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace windrow {

/// A view of a name. From a string literal it costs nothing; any other string is copied by the engine that is given it
/// and kept as long as that engine lives, so names should tell kinds of ops, not count instances.
class OpName {
 public:
  constexpr OpName() = default;
  template <std::size_t N>
  consteval OpName(const char (&literal)[N]) : text_(literal, N - 1) {}
  OpName(const std::string& text) : text_(text), literal_(false) {}
  OpName(std::string_view text) : text_(text), literal_(false) {}

  constexpr std::string_view text() const { return text_; }
  /// Whether the text lives as long as the program.
  constexpr bool literal() const { return literal_; }

 private:
  std::string_view text_;
  bool literal_ = true;
};

}  // namespace windrow
