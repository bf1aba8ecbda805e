// The name of an op or a variable, as errors and traces show it.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace windrow {

/// A value that is as cheap to copy as a pointer. Construction from a string literal costs nothing. Any other string is
/// interned in a table of the process that is never freed, so names should denote kinds of ops and not instances. A
/// literal that passes through a forwarding function, such as std::bind, is no literal any more: wrap it in OpName.
class OpName {
 public:
  constexpr OpName() = default;
  template <std::size_t N>
  consteval OpName(const char (&literal)[N]) : text_(literal, N - 1) {}
  template <std::size_t N>
  OpName(char (&text)[N]) : text_(keep(text)) {}
  /// A null pointer gives no name.
  template <class Pointer>
  requires(std::is_same_v<std::remove_cvref_t<Pointer>, const char*> ||
           std::is_same_v<std::remove_cvref_t<Pointer>, char*>) OpName(Pointer&& text)
      : text_(text == nullptr ? std::string_view() : keep(text)) {}
  OpName(const std::string& text) : text_(keep(text)) {}
  OpName(std::string_view text) : text_(keep(text)) {}

  constexpr std::string_view text() const { return text_; }
  /// The same, null-terminated.
  constexpr const char* c_str() const { return text_.empty() ? "" : text_.data(); }

 private:
  static std::string_view keep(std::string_view text);

  std::string_view text_;  // lives as long as the process
};

}  // namespace windrow
