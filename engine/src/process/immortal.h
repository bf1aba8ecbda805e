// An object of the process that is made on first use and never destroyed, so that engines in static storage can use it
// after main has returned.
#pragma once

#include <cstddef>
#include <new>

namespace windrow {

template <class T>
T& immortal() {
  alignas(T) static std::byte storage[sizeof(T)];
  static T* const made = ::new (storage) T;
  return *made;
}

}  // namespace windrow
