#include "memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace windrow::cuda {
namespace {

/// Sizes of all pinned memory, by first byte.
struct PinnedRanges {
  std::mutex mutex;
  std::map<std::uintptr_t, std::size_t> all;  // guarded by mutex
};
PinnedRanges& pinned_ranges() {
  static auto* const made = new PinnedRanges;  // never destroyed: other objects may use it until the end
  return *made;
}

std::uintptr_t address(const std::byte* start) { return reinterpret_cast<std::uintptr_t>(start); }

std::size_t span_of(const CopyShape& shape, std::size_t stride) {
  return shape.rows == 0 ? 0 : (shape.rows - 1) * stride + shape.width;
}

}  // namespace

PinnedMemory::PinnedMemory(std::shared_ptr<Hardware> hardware)
    : hardware_(std::move(hardware)), name_("pinned memory of " + hardware_->name()) {}

std::byte* PinnedMemory::allocate(std::size_t bytes) {
  const OnThread here(hardware_->cuda(), hardware_->number());
  void* made = nullptr;
  const std::size_t size = aligned_size(std::max<std::size_t>(bytes, 1));
  const int error = hardware_->cuda().allocate_pinned(&made, size);
  if (error != success) {
    hardware_->cuda().take_error();  // a pool may try again
    throw OutOfMemory(name_ + ": " + std::to_string(bytes) +
                      " bytes are not to be had: " + hardware_->cuda().text(error));
  }
  try {
    PinnedRanges& ranges = pinned_ranges();
    std::lock_guard lock(ranges.mutex);
    ranges.all.emplace(address(static_cast<std::byte*>(made)), size);
  } catch (const std::bad_alloc&) {
    hardware_->cuda().free_pinned(made);
    throw;
  }
  return static_cast<std::byte*>(made);
}

void PinnedMemory::deallocate(std::byte* start, std::size_t) noexcept {
  {
    PinnedRanges& ranges = pinned_ranges();
    std::lock_guard lock(ranges.mutex);
    ranges.all.erase(address(start));
  }
  const OnThread here(hardware_->cuda(), hardware_->number());
  hardware_->cuda().free_pinned(start);
}

bool PinnedMemory::contains(const std::byte* start, std::size_t bytes) {
  PinnedRanges& ranges = pinned_ranges();
  std::lock_guard lock(ranges.mutex);
  const auto after = ranges.all.upper_bound(address(start));
  if (after == ranges.all.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return address(start) + bytes <= begin + size;
}

DeviceMemory::DeviceMemory(std::shared_ptr<CudaLane> lane, std::shared_ptr<Allocator> staging, std::size_t limit)
    : lane_(std::move(lane)),
      hardware_(lane_->shared_hardware()),
      staging_(std::move(staging)),
      limit_(limit),
      name_(lane_->name()) {}

DeviceMemory::~DeviceMemory() {
  for (const auto& [lane, held] : workspaces_) {
    if (held.start != nullptr) deallocate(held.start, held.bytes);
  }
}

std::byte* DeviceMemory::allocate(std::size_t bytes) {
  const std::size_t size = aligned_size(std::max<std::size_t>(bytes, 1), alignment());
  const OnThread here(hardware_->cuda(), hardware_->number());
  const std::size_t before = in_use_.fetch_add(size);
  const bool within = limit_ == 0 || (before <= limit_ && size <= limit_ - before);
  void* made = nullptr;
  int error = here.error();
  if (error == success) error = within ? hardware_->cuda().allocate(&made, size) : int{out_of_memory};
  if (error == success) return static_cast<std::byte*>(made);
  in_use_ -= size;
  if (const std::exception_ptr failure = hardware_->failure()) std::rethrow_exception(failure);
  if (error != out_of_memory) throw Error(name_ + ": no memory: " + hardware_->cuda().text(error));
  hardware_->cuda().take_error();
  std::size_t free = 0;
  hardware_->cuda().free_memory(&free);
  throw OutOfMemory(name_ + ": " + std::to_string(bytes) + " bytes are not to be had; " + std::to_string(before) +
                    (limit_ == 0 ? "" : " of " + std::to_string(limit_)) + " are in use, and " + std::to_string(free) +
                    " of the device are free");
}

/// The runtime waits for the device before it frees memory.
void DeviceMemory::deallocate(std::byte* start, std::size_t bytes) noexcept {
  const OnThread here(hardware_->cuda(), hardware_->number());
  hardware_->cuda().free(start);
  in_use_ -= aligned_size(std::max<std::size_t>(bytes, 1), alignment());
}

/// A lane runs its work in order, so all its kernels share one workspace. A smaller workspace can be freed at once: the
/// runtime waits until the device has finished with it.
std::byte* DeviceMemory::workspace_beside(Lane* lane, std::size_t bytes) {
  if (&lane_of(lane, "a kernel with a workspace") == lane_.get()) return nullptr;
  std::lock_guard lock(mutex_);
  Workspace& held = workspaces_[lane];
  if (held.start != nullptr && held.bytes < bytes) {
    deallocate(std::exchange(held.start, nullptr), std::exchange(held.bytes, 0));
  }
  if (held.start == nullptr) held = {allocate(bytes), bytes};
  return held.start;
}

CudaLane& DeviceMemory::lane_of(Lane* lane, const char* work) const {
  CudaLane& on = CudaLane::of(lane, work);
  if (on.shared_hardware() == hardware_) return on;
  throw Error(std::string(work) + ", in the memory of " + name_ + ", on lane '" + std::string(on.name()) +
              "'; expected a lane of that device");
}

void DeviceMemory::upload(Lane* lane, std::byte* to, const std::byte* from_host, const CopyShape& shape) {
  CudaLane& on = lane_of(lane, "upload");
  CopyShape from_there = shape;
  if (!PinnedMemory::contains(from_host, span_of(shape, shape.from_stride))) {
    const std::size_t bytes = shape.rows * shape.width;
    const std::shared_ptr<std::byte> copy(staging_->allocate(bytes), [staging = staging_, bytes](std::byte* start) {
      staging->deallocate(start, bytes);
    });
    for (std::size_t row = 0; row < shape.rows; ++row) {
      std::memcpy(copy.get() + row * shape.width, from_host + row * shape.from_stride, shape.width);
    }
    on.keep(copy);
    from_host = copy.get();
    from_there.from_stride = shape.width;
  }
  on.issue("upload", [&] { return hardware_->cuda().copy(on.queue(), to, from_host, &from_there); });
}

void DeviceMemory::download(Lane* lane, std::byte* to_host, const std::byte* from, const CopyShape& shape) {
  CudaLane& on = lane_of(lane, "download");
  on.issue("download", [&] { return hardware_->cuda().copy(on.queue(), to_host, from, &shape); });
}

void DeviceMemory::clear(Lane* lane, std::byte* start, std::size_t bytes) {
  CudaLane& on = lane_of(lane, "clear");
  on.issue("clear", [&] { return hardware_->cuda().clear(on.queue(), start, bytes); });
}

}  // namespace windrow::cuda
