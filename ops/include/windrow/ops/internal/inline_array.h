// An array, such as the operands of one call, which takes no memory from the heap for a few elements.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace windrow {

/// Up to `few` elements lie within the array. Few, because they are initialised at each use.
template <class T, std::size_t few = 6>
class InlineArray {
 public:
  /// The elements one(0) to one(count - 1).
  template <class One>
  InlineArray(std::size_t count, const One& one) : count_(count) {
    if (count > inline_.size()) heap_.resize(count);
    T* const to = count > inline_.size() ? heap_.data() : inline_.data();
    for (std::size_t k = 0; k < count; ++k) to[k] = one(k);
  }
  InlineArray(const InlineArray&) = delete;
  InlineArray& operator=(const InlineArray&) = delete;

  operator std::span<const T>() const { return {heap_.empty() ? inline_.data() : heap_.data(), count_}; }

 private:
  std::size_t count_;
  std::array<T, few> inline_;
  std::vector<T> heap_;  // all elements if there are more
};

}  // namespace windrow
