// Numbers that describe what a runner has learned, one after the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
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
  void end() const {
    if (!left_.empty()) refuse();
  }
  [[noreturn]] static void refuse() {
    throw MisuseError("a history of another runner; expected one that a runner of the same function gave");
  }

 private:
  std::span<const std::int64_t> left_;
};

}  // namespace windrow
