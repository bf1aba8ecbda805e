// A simulated device: an ordered lane with a thread of its own, memory that the host cannot access, and the host's
// kernels, which run when the lane reaches them.
#pragma once

#include <memory>

#include "tests/engine/sim_device.h"
#include "tests/twice_mapped.h"
#include "windrow/memory/allocator.h"
#include "windrow/ops/device.h"

namespace windrow::testing {

/// Memory of the lane that is passed with the constructor. What is freed is overwritten, and can be allocated again,
/// when the lane gets there.
class SimMemory final : public Allocator {
 public:
  SimMemory(std::shared_ptr<SimLane> lane, std::size_t capacity);
  ~SimMemory() override;
  SimMemory(const SimMemory&) = delete;
  SimMemory& operator=(const SimMemory&) = delete;

  std::string_view name() const override { return name_; }
  bool on_host() const override { return false; }
  std::size_t alignment() const override { return TwiceMapped::alignment; }
  std::byte* allocate(std::size_t bytes) override;
  void deallocate(std::byte* start, std::size_t bytes) noexcept override;
  void upload(Lane* lane, std::byte* to, const std::byte* from_host, const CopyShape& shape) override;
  void download(Lane* lane, std::byte* to_host, const std::byte* from, const CopyShape& shape) override;
  void clear(Lane* lane, std::byte* start, std::size_t bytes) override;

  /// Bytes that are allocated, or freed and not yet reached by the lane.
  std::size_t held() const;
  /// The lane's address of a device address; null for null.
  template <class T>
  T* mapped(T* device_address) const {
    return device_address == nullptr ? nullptr : reinterpret_cast<T*>(memory_.mapped(device_address));
  }
  /// The memory that contains a device address.
  static const SimMemory& of(const void* device_address);

 private:
  void release(TwiceMapped::Range range);

  const std::shared_ptr<SimLane> lane_;
  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable released_;
  TwiceMapped memory_;         // guarded by mutex_
  std::size_t releasing_ = 0;  // guarded by mutex_: ranges that the lane is to release
};

struct SimulatedDevice {
  std::shared_ptr<SimLane> lane;
  std::shared_ptr<SimMemory> memory;
  Device device;
};

struct SimulatedOptions {
  std::string name = "sim:0";
  int number = 1;  ///< Lane::device()
  bool pool = true;
  unsigned seed = 0;  ///< of random delays in the lane's work; 0 for none
  std::size_t capacity = std::size_t{256} << 20;
};

/// Adds a simulated device's lane to the engine.
SimulatedDevice simulated_device(Engine& engine, const SimulatedOptions& options = {});

}  // namespace windrow::testing
