#include "allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace windrow::perf {
namespace {

// Written by the owner of a CountedAllocations, read by all threads.
constinit std::atomic<bool> counts{false};
constinit std::atomic<std::uint64_t> calls_of_new{0};  // written by all threads

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  if (counts.load(std::memory_order_relaxed)) calls_of_new.fetch_add(1, std::memory_order_relaxed);
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* const memory = allocate(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

CountedAllocations::CountedAllocations() {
  calls_of_new = 0;
  counts = true;
}
CountedAllocations::~CountedAllocations() { counts = false; }

std::uint64_t CountedAllocations::calls() const { return calls_of_new; }

}  // namespace windrow::perf

// All forms, since a sanitizer replaces those that a program does not.
void* operator new(std::size_t bytes) { return windrow::perf::allocate_or_throw(bytes, 1); }
void* operator new[](std::size_t bytes) { return windrow::perf::allocate_or_throw(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return windrow::perf::allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return windrow::perf::allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return windrow::perf::allocate(bytes, 1); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return windrow::perf::allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return windrow::perf::allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return windrow::perf::allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
