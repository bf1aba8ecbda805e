// Memory of a CUDA device, and the memory of the host that it copies from and to.
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

/// Pinned memory, which a device accesses by itself. Take it from a pool: an allocation takes long.
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

/// Memory of a device that belongs to a lane. It makes an allocation of the CUDA runtime for each of its own; a pool
/// above it makes them rare.
class DeviceMemory final : public Allocator {
 public:
  /// `limit`: the most bytes; 0 for all of the device's.
  DeviceMemory(std::shared_ptr<CudaLane> lane, std::shared_ptr<Allocator> staging, std::size_t limit);
  ~DeviceMemory() override;

  std::string_view name() const override { return name_; }
  bool on_host() const override { return false; }
  std::size_t alignment() const override { return 256; }
  std::byte* allocate(std::size_t bytes) override;
  void deallocate(std::byte* start, std::size_t bytes) noexcept override;
  // Copies from and to memory of the host that is not pinned go through pinned memory, since the CUDA runtime would
  // make the calling thread wait. This is not possible for downloads: use staging().
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
