// The operands of one call, which take no memory from the heap if they are few.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace windrow {

template <class T>
class Few {
 public:
  /// The elements one(0) to one(count - 1).
  template <class One>
  Few(std::size_t count, const One& one) : count_(count) {
    if (count > few_.size()) many_.resize(count);
    T* const to = count > few_.size() ? many_.data() : few_.data();
    for (std::size_t k = 0; k < count; ++k) to[k] = one(k);
  }
  Few(const Few&) = delete;
  Few& operator=(const Few&) = delete;

  operator std::span<const T>() const { return {many_.empty() ? few_.data() : many_.data(), count_}; }

 private:
  std::size_t count_;
  std::array<T, 6> few_;
  std::vector<T> many_;  // all elements if there are more
};

}  // namespace windrow
