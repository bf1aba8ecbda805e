// An allocator that counts, with a limited capacity.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "windrow/memory/allocator.h"

namespace windrow::testing {

inline constexpr std::size_t kib = 1024, mib = 1024 * kib;

class CountingAllocator final : public Allocator {
 public:
  explicit CountingAllocator(std::size_t capacity = 1u << 30) : capacity_(capacity) {}

  std::string_view name() const override { return "counting"; }
  std::byte* allocate(std::size_t bytes) override {
    if (bytes > capacity_ - held) throw OutOfMemory("counting: full");
    std::byte* start = host_->allocate(bytes);
    held += bytes;
    if (held > most_held) most_held = held.load();
    ++allocations;
    std::this_thread::sleep_for(pause);
    return start;
  }
  void deallocate(std::byte* start, std::size_t bytes) noexcept override {
    ++deallocations;
    if (in_deallocate) in_deallocate();
    std::this_thread::sleep_for(pause);
    held -= bytes;
    host_->deallocate(start, bytes);
  }

  std::atomic<std::size_t> held = 0;
  std::atomic<std::size_t> most_held = 0;
  std::atomic<int> allocations = 0, deallocations = 0;
  /// The duration of each call. A pause exposes code that relies on a call having finished. Set it before use.
  std::chrono::milliseconds pause{0};
  std::function<void()> in_deallocate = {};  ///< called first by deallocate()

 private:
  const std::size_t capacity_;
  const std::shared_ptr<Allocator> host_ = host_allocator();
};

}  // namespace windrow::testing
