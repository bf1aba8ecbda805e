#include "windrow/memory/allocator.h"

#include <algorithm>
#include <limits>
#include <new>

namespace windrow {
namespace {

class HostAllocator final : public Allocator {
 public:
  std::string_view name() const override { return "host"; }

  std::byte* allocate(std::size_t bytes) override {
    void* start = ::operator new (std::max<std::size_t>(bytes, 1), std::align_val_t{memory_alignment}, std::nothrow);
    if (start == nullptr) throw OutOfMemory("host: " + std::to_string(bytes) + " bytes are not to be had");
    return static_cast<std::byte*>(start);
  }
  void deallocate(std::byte* start, std::size_t) noexcept override {
    ::operator delete (start, std::align_val_t{memory_alignment});
  }
};

}  // namespace

std::size_t aligned_size(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
    throw OutOfMemory(std::to_string(bytes) + " bytes are more than any memory holds");
  }
  return (bytes + memory_alignment - 1) / memory_alignment * memory_alignment;
}

std::shared_ptr<Allocator> host_allocator() { return std::make_shared<HostAllocator>(); }

}  // namespace windrow
