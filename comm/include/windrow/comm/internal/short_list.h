// A list that allocates nothing while it is short.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace windrow::comm {

/// Up to `few` elements lie inside the list; more lie in a vector. A list that was moved from is empty.
template <class T, std::size_t few = 2>
class ShortList {
  static_assert(std::is_nothrow_move_constructible_v<T>);

 public:
  ShortList() = default;
  ShortList(std::initializer_list<T> elements) {
    for (const T& element : elements) push_back(element);
  }
  ShortList(const ShortList& other) {
    for (const T& element : other) push_back(element);
  }
  ShortList(ShortList&& other) noexcept { take(other); }
  ShortList& operator=(const ShortList& other) { return *this = ShortList(other); }
  ShortList& operator=(ShortList&& other) noexcept {
    if (this == &other) return *this;
    clear();
    take(other);
    return *this;
  }
  ~ShortList() { clear(); }

  void push_back(T element) {
    if (inside_ < few && many_.empty()) {
      ::new (static_cast<void*>(place(inside_))) T(std::move(element));
      ++inside_;
      return;
    }
    if (many_.empty()) {
      many_.reserve(2 * few);
      for (T& one : *this) many_.push_back(std::move(one));
      destroy_inside();
    }
    many_.push_back(std::move(element));
  }
  void clear() {
    destroy_inside();
    many_.clear();
  }

  std::size_t size() const { return many_.empty() ? inside_ : many_.size(); }
  bool empty() const { return size() == 0; }
  T* data() { return many_.empty() ? place(0) : many_.data(); }
  const T* data() const { return const_cast<ShortList*>(this)->data(); }
  T* begin() { return data(); }
  T* end() { return data() + size(); }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  T& front() { return *data(); }
  const T& front() const { return *data(); }

  friend bool operator==(const ShortList& a, const ShortList& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  T* place(std::size_t i) { return std::launder(reinterpret_cast<T*>(bytes_)) + i; }
  void destroy_inside() {
    std::destroy_n(place(0), inside_);
    inside_ = 0;
  }
  /// Precondition: this list is empty.
  void take(ShortList& other) noexcept {
    many_ = std::move(other.many_);
    other.many_.clear();
    if constexpr (std::is_trivially_copyable_v<T>) {
      std::memcpy(bytes_, other.bytes_, sizeof bytes_);  // of a constant size, which takes a few instructions
    } else {
      std::uninitialized_move_n(other.place(0), other.inside_, place(0));
    }
    inside_ = other.inside_;
    other.destroy_inside();
  }

  std::size_t inside_ = 0;  // 0 if the elements are in many_
  alignas(T) std::byte bytes_[few * sizeof(T)];
  std::vector<T> many_;
};

}  // namespace windrow::comm
