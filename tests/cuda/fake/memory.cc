#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

#include "world.h"

namespace windrow::fake {

// Devices lie at fixed addresses which no other object is likely to contain by chance.
constexpr std::uintptr_t first_address = 0x7e9d00000000;
constexpr std::uintptr_t distance = std::uintptr_t{1} << 34;
constexpr std::size_t alignment = 256;

static std::size_t rounded(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
}

Memory::Memory(int device, std::size_t capacity) : capacity_(capacity / alignment * alignment) {
  const int file = ::memfd_create("fake-cuda", 0);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(capacity)) != 0) throw std::runtime_error("fake CUDA: no file");
  const auto map = [&](std::uintptr_t address, int rights, int flags) {
    void* const start = ::mmap(reinterpret_cast<void*>(address), capacity, rights, MAP_SHARED | flags, file, 0);
    if (start == MAP_FAILED) throw std::runtime_error("fake CUDA: no mapping");
    return static_cast<std::byte*>(start);
  };
  addresses_ = map(first_address + static_cast<std::uintptr_t>(device) * distance, PROT_NONE, MAP_FIXED_NOREPLACE);
  contents_ = map(0, PROT_READ | PROT_WRITE, 0);
  ::close(file);
}

Memory::~Memory() {
  ::munmap(addresses_, capacity_);
  ::munmap(contents_, capacity_);
}

void* Memory::allocate(std::size_t bytes) {
  if (bytes > capacity_) return nullptr;
  const std::size_t size = rounded(bytes);
  std::size_t begin = 0;  // the first gap that is large enough
  for (const auto& [other, end] : taken_) {
    if (other - begin >= size) break;
    begin = end;
  }
  if (begin > capacity_ || size > capacity_ - begin) return nullptr;
  taken_.emplace(begin, begin + size);
  taken_bytes_ += size;
  std::memset(contents_ + begin, 0xcd, size);
  return addresses_ + begin;
}

bool Memory::free(void* start) {
  const auto at = reinterpret_cast<std::uintptr_t>(start);
  if (!contains(at)) return false;
  const auto found = taken_.find(at - begin());
  if (found == taken_.end()) return false;
  std::memset(contents_ + found->first, 0xcd, found->second - found->first);
  taken_bytes_ -= found->second - found->first;
  taken_.erase(found);
  return true;
}

bool Memory::allocated(const void* start, std::size_t bytes) const {
  const std::size_t at = reinterpret_cast<std::uintptr_t>(start) - begin();
  auto found = taken_.upper_bound(at);
  return found != taken_.begin() && at + bytes <= (--found)->second;
}

/// Memories are made and end when no work runs, so that this needs no mutex.
static const Memory* memory_of(std::uintptr_t address) {
  if (address < first_address) return nullptr;
  const std::size_t device = (address - first_address) / distance;
  const auto& all = world().memories;
  return device < all.size() && all[device]->contains(address) ? all[device].get() : nullptr;
}

bool on_device(const void* address) { return memory_of(reinterpret_cast<std::uintptr_t>(address)) != nullptr; }

void* mapped(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const Memory* const memory = memory_of(at);
  return reinterpret_cast<void*>(memory == nullptr ? at : memory->mapped(at));
}

void relocate(void* object, std::size_t bytes) {
  for (std::size_t i = 0; i + sizeof(void*) <= bytes; i += sizeof(void*)) {
    void* word;
    std::memcpy(&word, static_cast<std::byte*>(object) + i, sizeof word);
    word = mapped(word);
    std::memcpy(static_cast<std::byte*>(object) + i, &word, sizeof word);
  }
}

}  // namespace windrow::fake
