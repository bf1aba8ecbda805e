#include "windrow/ops/device.h"

#include "windrow/memory/pool.h"

namespace windrow {
void trace_memory(const Device& device) {
  const auto add = [&](const char* what, std::size_t MemoryUse::*bytes) {
    device.engine->trace().add_counter(
        device.name + ": " + what + " bytes",
        [bytes, of = std::weak_ptr<const Allocator>(device.memory)]() -> std::optional<std::uint64_t> {
          const std::shared_ptr<const Allocator> memory = of.lock();
          if (memory == nullptr) return std::nullopt;
          return memory->use().*bytes;
        });
  };
  add("live", &MemoryUse::live);
  add("cached", &MemoryUse::cached);
}

Device host_device(Engine& engine, std::size_t memory_limit) {
  const PoolOptions pool = {.limit = memory_limit,
                            .patience = std::chrono::milliseconds(memory_limit == unlimited ? 0 : 100),
                            .below = PoolOptions::Below::fast};
  Device device = {.name = "host",
                   .engine = engine,
                   .lane = host_lane,
                   .memory = std::make_shared<Pool>(engine.watcher() ? page_allocator() : host_allocator(), pool),
                   .kernels = host_kernels()};
  trace_memory(device);
  return device;
}

}  // namespace windrow
