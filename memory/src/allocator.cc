#include "windrow/memory/allocator.h"

#include <sys/mman.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>

namespace windrow {
namespace {

/// Pieces from this size on are mapped. The heap would keep them when they are freed, except at its end.
constexpr std::size_t least_mapped = std::size_t{1} << 20;
constexpr std::size_t page = std::size_t{64} << 10;  // a multiple of those of all systems
/// Larger pieces use pages of this size if the system provides them, which saves page faults and TLB misses.
constexpr std::size_t huge_page = std::size_t{2} << 20;

std::size_t system_page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

/// Null if there is no memory.
std::byte* map(std::size_t bytes) {
  const bool huge = bytes >= 2 * huge_page;
  const std::size_t size = aligned_size(bytes, page), slack = huge ? huge_page : 0;
  void* const mapped = ::mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(mapped);
  if (!huge) return begin;
  const std::size_t before = (huge_page - reinterpret_cast<std::uintptr_t>(begin) % huge_page) % huge_page;
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + size, slack - before);
  ::madvise(begin + before, bytes / huge_page * huge_page, MADV_HUGEPAGE);  // may be refused
  return begin + before;
}

class HostAllocator final : public Allocator {
 public:
  std::string_view name() const override { return "host"; }

  std::byte* allocate(std::size_t bytes) override {
    void* const start =
        bytes >= least_mapped ? map(bytes) : ::operator new(std::max<std::size_t>(bytes, 1), alignment, std::nothrow);
    if (start == nullptr) throw OutOfMemory("host: " + std::to_string(bytes) + " bytes are not to be had");
    return static_cast<std::byte*>(start);
  }
  void deallocate(std::byte* start, std::size_t bytes) noexcept override {
    if (bytes < least_mapped) return ::operator delete(start, alignment);
    ::munmap(start, aligned_size(bytes, page));
  }

 private:
  static constexpr std::align_val_t alignment{memory_alignment};
};

class PageAllocator final : public Allocator {
 public:
  std::string_view name() const override { return "host pages"; }
  std::size_t alignment() const override { return bytes_of_page; }

  std::byte* allocate(std::size_t bytes) override {
    void* const start = ::mmap(nullptr, aligned_size(std::max<std::size_t>(bytes, 1), alignment()),
                               PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw OutOfMemory("host pages: " + std::to_string(bytes) + " bytes are not to be had");
    return static_cast<std::byte*>(start);
  }
  void deallocate(std::byte* start, std::size_t bytes) noexcept override {
    ::munmap(start, aligned_size(std::max<std::size_t>(bytes, 1), alignment()));
  }

 private:
  const std::size_t bytes_of_page = system_page();
};

/// On the host.
void copy(std::byte* to, const std::byte* from, const CopyShape& shape) {
  if (shape.width == 0) return;  // the pointers may be null, which memcpy does not allow
  for (std::size_t row = 0; row < shape.rows; ++row) {
    std::memcpy(to + row * shape.to_stride, from + row * shape.from_stride, shape.width);
  }
}

}  // namespace

void Allocator::upload(Lane*, std::byte* to, const std::byte* from_host, const CopyShape& shape) {
  copy(to, from_host, shape);
}

void Allocator::download(Lane*, std::byte* to_host, const std::byte* from, const CopyShape& shape) {
  copy(to_host, from, shape);
}

void Allocator::clear(Lane*, std::byte* start, std::size_t bytes) { std::fill_n(start, bytes, std::byte{0}); }

std::shared_ptr<Allocator> Allocator::staging() { return host_allocator(); }

DividingAllocator::DividingAllocator(std::shared_ptr<Allocator> below, std::string_view kind)
    : below_(std::move(below)) {
  if (below_ == nullptr) throw MisuseError(std::string(kind) + ": no allocator below; expected one");
}

void DividingAllocator::upload(Lane* lane, std::byte* to, const std::byte* from_host, const CopyShape& shape) {
  below_->upload(lane, to, from_host, shape);
}

void DividingAllocator::download(Lane* lane, std::byte* to_host, const std::byte* from, const CopyShape& shape) {
  below_->download(lane, to_host, from, shape);
}

void DividingAllocator::clear(Lane* lane, std::byte* start, std::size_t bytes) { below_->clear(lane, start, bytes); }

std::size_t aligned_size(std::size_t bytes, std::size_t alignment) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) {
    throw OutOfMemory(std::to_string(bytes) + " bytes are more than any memory holds");
  }
  return (bytes + alignment - 1) / alignment * alignment;
}

void trim_heap() noexcept {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

std::shared_ptr<Allocator> host_allocator() { return std::make_shared<HostAllocator>(); }

std::shared_ptr<Allocator> page_allocator() { return std::make_shared<PageAllocator>(); }

}  // namespace windrow
