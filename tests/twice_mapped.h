// Memory of a device that is not there: mapped twice, once without access rights, so that code of the host that uses
// one of its addresses ends with a segmentation fault, and once for the work of the device.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>

namespace windrow::testing {

/// Gives out ranges, the first gap that is large enough. Threads: one at a time, except for contains() and mapped().
class TwiceMapped {
 public:
  static constexpr std::size_t alignment = 256;
  struct Range {
    std::size_t begin, end;  ///< offsets
    std::size_t size() const { return end - begin; }
  };

  /// `at`: where the addresses begin; 0 for anywhere. Throws std::runtime_error.
  explicit TwiceMapped(std::size_t capacity, std::uintptr_t at = 0) : capacity_(capacity / alignment * alignment) {
    const int file = ::memfd_create("windrow", 0);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(capacity_)) != 0) throw std::runtime_error("no file");
    const auto map = [&](std::uintptr_t address, int rights, int flags) {
      void* const start = ::mmap(reinterpret_cast<void*>(address), capacity_, rights, MAP_SHARED | flags, file, 0);
      if (start == MAP_FAILED) throw std::runtime_error("no mapping of a device's memory");
      return static_cast<std::byte*>(start);
    };
    addresses_ = map(at, PROT_NONE, at == 0 ? 0 : MAP_FIXED_NOREPLACE);
    contents_ = map(0, PROT_READ | PROT_WRITE, 0);
    ::close(file);
  }
  ~TwiceMapped() {
    ::munmap(addresses_, capacity_);
    ::munmap(contents_, capacity_);
  }
  TwiceMapped(const TwiceMapped&) = delete;
  TwiceMapped& operator=(const TwiceMapped&) = delete;

  std::optional<Range> take(std::size_t bytes) {
    const std::size_t size = rounded(bytes);
    std::size_t begin = 0;
    for (const auto& [other, end] : taken_) {
      if (other - begin >= size) break;
      begin = end;
    }
    if (size < bytes || begin > capacity_ || size > capacity_ - begin) return std::nullopt;
    taken_.emplace(begin, begin + size);
    taken_bytes_ += size;
    return Range{begin, begin + size};
  }
  /// The range that begins at an address.
  std::optional<Range> find(const void* address) const {
    if (!contains(address)) return std::nullopt;
    const auto found = taken_.find(offset(address));
    return found == taken_.end() ? std::nullopt : std::optional(Range{found->first, found->second});
  }
  void give_back(Range range) {
    taken_.erase(range.begin);
    taken_bytes_ -= range.size();
  }
  /// Whether [start, start + bytes) lies within one range.
  bool taken(const void* start, std::size_t bytes) const {
    auto found = taken_.upper_bound(offset(start));
    return found != taken_.begin() && offset(start) + bytes <= (--found)->second;
  }
  std::size_t taken_bytes() const { return taken_bytes_; }
  std::size_t capacity() const { return capacity_; }

  std::byte* address(Range range) const { return addresses_ + range.begin; }
  std::byte* contents(Range range) const { return contents_ + range.begin; }
  bool contains(const void* address) const { return offset(address) < capacity_; }
  /// Where the device's work finds what has that address.
  std::byte* mapped(const void* address) const { return contents_ + offset(address); }

 private:
  static std::size_t rounded(std::size_t bytes) {
    return (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  }
  std::size_t offset(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(addresses_);
  }

  const std::size_t capacity_;
  std::byte* addresses_;  // without access rights
  std::byte* contents_;
  std::map<std::size_t, std::size_t> taken_;  // end by begin
  std::size_t taken_bytes_ = 0;
};

}  // namespace windrow::testing
