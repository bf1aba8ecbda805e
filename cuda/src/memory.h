// Memory of a CUDA device, and host memory for copies from and to it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "hardware.h"
#include "lane.h"
#include "windrow/memory/allocator.h"

namespace windrow::cuda {

/// Pinned memory, which a device accesses by itself. Allocations take long, so use it through a pool.
class PinnedMemory final : public Allocator {
 public:
  explicit PinnedMemory(std::shared_ptr<Hardware> hardware);

  std::string_view name() const override { return name_; }
  std::byte* allocate(std::size_t bytes) override;
  void deallocate(std::byte* start, std::size_t bytes) noexcept override;
  /// Whether the bytes lie in memory of any device's PinnedMemory.
  static bool contains(const std::byte* start, std::size_t bytes);

 private:
  const std::shared_ptr<Hardware> hardware_;
  const std::string name_;
};

/// Memory of a device that belongs to a lane. Each allocation calls the CUDA runtime; a pool above it makes these calls
/// rare.
class DeviceMemory final : public Allocator {
 public:
  /// `limit`: the most bytes; 0 means all memory of the device.
  DeviceMemory(std::shared_ptr<CudaLane> lane, std::shared_ptr<Allocator> staging, std::size_t limit);
  ~DeviceMemory() override;

  std::string_view name() const override { return name_; }
  bool on_host() const override { return false; }
  std::size_t alignment() const override { return 256; }
  std::byte* allocate(std::size_t bytes) override;
  void deallocate(std::byte* start, std::size_t bytes) noexcept override;
  // Uploads from host memory that is not pinned go through pinned memory, since the CUDA runtime would make the calling
  // thread wait. Downloads cannot; for them, use staging().
  void upload(Lane* lane, std::byte* to, const std::byte* from_host, const CopyShape& shape) override;
  void download(Lane* lane, std::byte* to_host, const std::byte* from, const CopyShape& shape) override;
  void clear(Lane* lane, std::byte* start, std::size_t bytes) override;
  std::shared_ptr<Allocator> staging() override { return staging_; }
  std::byte* workspace_beside(Lane* lane, std::size_t bytes) override;

  const CudaLane& lane() const { return *lane_; }

 private:
  CudaLane& lane_of(Lane* lane, const char* work) const;

  const std::shared_ptr<CudaLane> lane_;
  const std::shared_ptr<Hardware> hardware_;
  const std::shared_ptr<Allocator> staging_;
  const std::size_t limit_;
  const std::string name_;
  std::atomic<std::size_t> in_use_{0};

  struct Workspace {
    std::byte* start = nullptr;
    std::size_t bytes = 0;
  };
  std::mutex mutex_;
  std::map<const Lane*, Workspace> workspaces_;  // of other lanes; guarded by mutex_
};

}  // namespace windrow::cuda
