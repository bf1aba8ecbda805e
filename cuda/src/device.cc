#include "windrow/cuda/device.h"

#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "backend/cuda_execution.h"
#include "memory.h"
#include "windrow/memory/pool.h"
#include "windrow/ops/operators.h"

namespace windrow::cuda {
namespace {

DeviceInfo info_of(int number, const DeviceFacts& facts) {
  return {number, facts.name, architecture_of(facts), facts.memory};
}

static_assert(static_cast<int>(Precision::tf32) == static_cast<int>(Rounding::tf32));
static_assert(static_cast<int>(Precision::bf16) == static_cast<int>(Rounding::bf16));

/// The memory below the pool; null if it is not CUDA memory.
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

/// Every operator of operators.h has a kernel.
const KernelEntry& entry_of(const Operator& op) {
  static const auto entries = [] {
    std::unordered_map<const Operator*, const KernelEntry*> made;
    for (const Operator* one : op::all()) made.emplace(one, plugin().kernel(std::string(one->name.text()).c_str()));
    return made;
  }();
  const auto found = entries.find(&op);
  if (found == entries.end() || found->second == nullptr) {
    throw MisuseError(std::string(op.name.text()) + ": no kernel for CUDA devices");
  }
  return *found->second;
}

void run(const KernelCall<float>& call) {
  const KernelEntry& entry = entry_of(*call.op);
  CudaLane& lane = CudaLane::of(call.lane, entry.op);
  lane.issue(entry.op, [&] { return entry.run(call, *lane.queue()); });
}

void run_each(std::span<const KernelCall<float>> calls) {
  const KernelEntry& entry = entry_of(*calls.front().op);
  CudaLane& lane = CudaLane::of(calls.front().lane, entry.op);
  lane.issue(entry.op, [&] { return entry.run_each(calls.data(), calls.size(), *lane.queue()); });
}

std::size_t workspace(const KernelCall<float>& call) { return entry_of(*call.op).workspace(call); }

/// The kernels of all operators of operators.h.
const KernelTable<float>& kernels() {
  static const KernelTable<float> table = [] {
    KernelTable<float> made;
    for (const Operator* op : op::all()) {
      const KernelEntry& entry = entry_of(*op);
      Kernel<float> kernel(run, entry.workspace == nullptr ? nullptr : workspace);
      if (entry.run_each != nullptr) kernel.run_each = run_each;
      made.add(*op, kernel);
    }
    return made;
  }();
  return table;
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
  const std::shared_ptr<Hardware> hardware = Hardware::open(number);
  const auto lane = CudaLane::make(hardware, {.name = hardware->name(),
                                              .sync = options.sync,
                                              .queue = {.products = static_cast<Rounding>(options.precision)}});
  const auto staging = std::make_shared<Pool>(std::make_shared<PinnedMemory>(hardware));
  const auto memory = std::make_shared<DeviceMemory>(lane, staging, options.memory_limit);
  // Made before the engine gets any of them, since this may fail.
  std::vector<std::shared_ptr<CudaLane>> more;
  for (const char* name : {"copies out", "copies in", "collectives"}) {
    more.push_back(lane_beside(*lane, name, true));
  }
  const std::shared_ptr<const Backend> backend = make_backend(hardware, options);
  Device device = {.name = hardware->name(),
                   .engine = engine,
                   .lane = engine.add_lane(lane, options.lane),
                   .memory = std::make_shared<Pool>(memory),
                   .kernels = kernels(),
                   .backend = backend,
                   .row_stride = row_stride};
  std::vector<LaneId> lanes;
  for (const auto& one : more) lanes.push_back(engine.add_lane(one, options.lane));
  device.copy_out = lanes[0];
  device.collectives = lanes[2];
  device.native_queue = native_stream;
  trace_memory(device);
  return {std::move(device), info_of(number, hardware->facts()), lanes[0], lanes[1], lanes[2]};
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
