#include "windrow/memory/allocator.h"

#include <sys/mman.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <limits>
#include <new>

namespace windrow {
namespace {

/// Large pieces use pages of this size if the system provides them, which saves page faults and TLB misses.
constexpr std::size_t huge_page = std::size_t{2} << 20;

std::align_val_t alignment_of(std::size_t bytes) {
  return std::align_val_t{bytes >= 2 * huge_page ? huge_page : memory_alignment};
}

class HostAllocator final : public Allocator {
 public:
  std::string_view name() const override { return "host"; }

  std::byte* allocate(std::size_t bytes) override {
    void* start = ::operator new(std::max<std::size_t>(bytes, 1), alignment_of(bytes), std::nothrow);
    if (start == nullptr) throw OutOfMemory("host: " + std::to_string(bytes) + " bytes are not to be had");
    if (bytes >= 2 * huge_page) ::madvise(start, bytes / huge_page * huge_page, MADV_HUGEPAGE);  // may be refused
    return static_cast<std::byte*>(start);
  }
  void deallocate(std::byte* start, std::size_t bytes) noexcept override {
    ::operator delete(start, alignment_of(bytes));
  }
};

}  // namespace

std::size_t aligned_size(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
    throw OutOfMemory(std::to_string(bytes) + " bytes are more than any memory holds");
  }
  return (bytes + memory_alignment - 1) / memory_alignment * memory_alignment;
}

void trim_heap() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

std::shared_ptr<Allocator> host_allocator() { return std::make_shared<HostAllocator>(); }

}  // namespace windrow
