// Numbers that describe what a runner or a lazy graph has learned, one after the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/engine/error.h"

namespace windrow {

/// Appends numbers; a list follows its length.
class NumberWriter {
 public:
  void add(std::int64_t number) { numbers_.push_back(number); }
  template <class Range>
  void add_list(const Range& list) {
    add(static_cast<std::int64_t>(std::size(list)));
    for (const auto number : list) add(static_cast<std::int64_t>(number));
  }
  void add_text(std::string_view text) { add_list(text); }
  std::vector<std::int64_t> take() { return std::move(numbers_); }

 private:
  std::vector<std::int64_t> numbers_;
};

/// Reads them. Throws MisuseError for numbers that no writer has written.
class NumberReader {
 public:
  explicit NumberReader(std::span<const std::int64_t> numbers) : left_(numbers) {}

  std::int64_t next() {
    if (left_.empty()) refuse();
    const std::int64_t number = left_.front();
    left_ = left_.subspan(1);
    return number;
  }
  /// A number from `first` up to, but without, `end`.
  std::int64_t next(std::int64_t first, std::int64_t end) {
    const std::int64_t number = next();
    if (number < first || number >= end) refuse();
    return number;
  }
  /// The length of a list.
  std::size_t count() {
    const std::int64_t count = next();
    if (count < 0 || static_cast<std::uint64_t>(count) > left_.size()) refuse();
    return static_cast<std::size_t>(count);
  }
  template <class T>
  std::vector<T> list() {
    std::vector<T> list(count());
    for (T& number : list) number = static_cast<T>(next());
    return list;
  }
  /// Without control characters, so that it can stand in an error.
  std::string text() {
    const std::vector<char> text = list<char>();
    if (std::ranges::any_of(text, [](char c) { return 0 <= c && c < ' '; })) refuse();
    return {text.begin(), text.end()};
  }
  void end() const {
    if (!left_.empty()) refuse();
  }
  [[noreturn]] static void refuse() {
    throw MisuseError(
        "a history of something else; expected one of the same function or program, with the same options");
  }

 private:
  std::span<const std::int64_t> left_;
};

}  // namespace windrow
