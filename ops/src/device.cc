#include "windrow/ops/device.h"

#include "windrow/memory/pool.h"

namespace windrow {
namespace {

void count_in_traces(Engine& engine, const std::shared_ptr<Allocator>& counted) {
  const auto add = [&](const char* name, std::size_t MemoryUse::*bytes) {
    engine.trace().add_counter(name, [bytes, of = std::weak_ptr(counted)]() -> std::optional<std::uint64_t> {
      const std::shared_ptr<Allocator> memory = of.lock();
      if (memory == nullptr) return std::nullopt;
      return memory->use().*bytes;
    });
  };
  add("live bytes", &MemoryUse::live);
  add("cached bytes", &MemoryUse::cached);
}

}  // namespace

Device host_device(Engine& engine, std::size_t memory_limit) {
  const PoolOptions pool = {.limit = memory_limit,
                            .patience = std::chrono::milliseconds(memory_limit == unlimited ? 0 : 100),
                            .below = PoolOptions::Below::fast};
  Device device = {.name = "host",
                   .engine = engine,
                   .lane = host_lane,
                   .memory = std::make_shared<Pool>(engine.watcher() ? page_allocator() : host_allocator(), pool),
                   .kernels = host_kernels()};
  count_in_traces(engine, device.memory);
  return device;
}

}  // namespace windrow
