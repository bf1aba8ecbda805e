// Memory of a fake device. It is mapped twice: programs get addresses of a mapping without access rights, so that code
// of the host that uses one ends with a segmentation fault; kernels use the other mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace windrow::fake {

/// Members are called with the world's mutex, but for mapped() and relocate().
class Memory {
 public:
  Memory(int device, std::size_t capacity);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Null if there is no room.
  void* allocate(std::size_t bytes);
  /// Returns whether this was an allocation.
  bool free(void* start);
  std::size_t free_bytes() const { return capacity_ - taken_bytes_; }
  /// Whether [start, start + bytes) lies within one allocation.
  bool allocated(const void* start, std::size_t bytes) const;

  bool contains(std::uintptr_t address) const { return begin() <= address && address < begin() + capacity_; }
  std::uintptr_t mapped(std::uintptr_t address) const {
    return address - begin() + reinterpret_cast<std::uintptr_t>(contents_);
  }

 private:
  std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(addresses_); }

  const std::size_t capacity_;
  std::byte* addresses_;  // without access rights
  std::byte* contents_;
  std::map<std::size_t, std::size_t> taken_;  // end by begin
  std::size_t taken_bytes_ = 0;
};

/// The address at which the host can access memory of a device; other addresses, as they are.
void* mapped(const void* address);
/// Replaces the device addresses among the 8-byte words of an object.
void relocate(void* object, std::size_t bytes);
bool on_device(const void* address);

}  // namespace windrow::fake
