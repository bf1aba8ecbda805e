#include "windrow/cuda/device.h"

#include <algorithm>
#include <array>
#include <utility>

#include "backend/cuda_backend.h"
#include "kernels.h"
#include "memory.h"
#include "windrow/memory/pool.h"

namespace windrow::cuda {
namespace {

DeviceInfo info_of(int number, const DeviceFacts& facts) {
  return {number, facts.name, architecture_of(facts), facts.memory};
}

Rounding rounding_of(Precision precision) {
  switch (precision) {
    case Precision::tf32:
      return Rounding::tf32;
    case Precision::bf16:
      return Rounding::bf16;
    case Precision::float32:
      break;
  }
  return Rounding::none;
}

/// The memory below the pool; null if it is none of CUDA.
const DeviceMemory* memory_of(const Device& device) {
  const auto* const pool = dynamic_cast<const Pool*>(device.memory.get());
  return pool == nullptr ? nullptr : dynamic_cast<const DeviceMemory*>(&pool->below());
}

std::shared_ptr<CudaLane> lane_beside(const CudaLane& lane, const std::string& name, bool urgent) {
  CudaLane::Options same = lane.options();
  same.name += " " + name;
  same.queue.urgent = urgent;
  same.queue.multiplies = false;
  return CudaLane::make(lane.shared_hardware(), std::move(same));
}

/// Rows begin at multiples of 16 bytes, which the widest loads of a device need.
Index row_stride(Index width) { return (width + 3) / 4 * 4; }

}  // namespace

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> all;
  for (int number = 0, count = count_devices(); number < count; ++number) {
    DeviceFacts facts{};
    int error = plugin().facts(number, &facts);
    if (error != success) {  // perhaps the error of the thread's device
      const OnThread here(plugin(), number);
      error = here.error() != success ? here.error() : plugin().facts(number, &facts);
    }
    all.push_back(info_of(number, facts));
    if (error != success) all.back().problem = plugin().text(error);
  }
  return all;
}

OpenDevice open_device(Engine& engine, int number, const DeviceOptions& options) {
  if (options.streams < 1 || options.streams > 4) {
    throw MisuseError(device_name(number) + ": " + std::to_string(options.streams) + " streams; expected 1 to 4");
  }
  const std::shared_ptr<Hardware> hardware = Hardware::open(number);
  const auto lane = CudaLane::make(
      hardware,
      {.name = hardware->name(), .sync = options.sync, .queue = {.products = rounding_of(options.precision)}});
  const auto staging = std::make_shared<Pool>(std::make_shared<PinnedMemory>(hardware));
  const auto memory = std::make_shared<DeviceMemory>(lane, staging, options.memory_limit);
  // Before the engine has any of them: this may fail.
  std::vector<std::shared_ptr<CudaLane>> more;
  for (const char* name : {"copies out", "copies in", "collectives"}) {
    if (static_cast<int>(more.size()) + 1 < options.streams) more.push_back(lane_beside(*lane, name, true));
  }
  const std::shared_ptr<const Backend> backend = make_backend(hardware, options);
  Device device = {.name = hardware->name(),
                   .engine = engine,
                   .lane = engine.add_lane(lane, options.lane),
                   .memory = std::make_shared<Pool>(memory),
                   .kernels = kernels(),
                   .backend = backend,
                   .row_stride = row_stride};
  std::array<LaneId, 4> lanes;
  lanes.fill(device.lane);
  for (std::size_t i = 0; i < more.size(); ++i) {
    std::fill(lanes.begin() + 1 + static_cast<std::ptrdiff_t>(i), lanes.end(), engine.add_lane(more[i], options.lane));
  }
  device.copy_out = lanes[1];
  device.collectives = lanes[3];
  device.native_queue = native_stream;
  return {std::move(device), info_of(number, hardware->facts()), lanes[1], lanes[2], lanes[3]};
}

LaneId add_stream(const Device& device, const StreamOptions& options) {
  const DeviceMemory* const memory = memory_of(device);
  if (memory == nullptr) {
    throw MisuseError("stream '" + options.name + "': of device '" + device.name + "'; expected a device of CUDA");
  }
  return device.engine->add_lane(lane_beside(memory->lane(), options.name, options.urgent), options.lane);
}

void* native_stream(Lane* lane) {
  const CudaLane& on = CudaLane::of(lane, "native_stream");
  return on.hardware().cuda().stream(on.queue());
}

}  // namespace windrow::cuda
