#include "windrow/ops/device.h"

#include "windrow/memory/pool.h"
#include "windrow/memory/segments.h"

namespace windrow {
namespace {

/// A pool for pieces up to 256 KiB, above segments that are divided (docs/memory.md). Parameters, their gradients and
/// the states of optimisers, which live long, are not to divide segments of minibatches.
std::shared_ptr<Allocator> host_memory(std::size_t limit) {
  constexpr std::size_t piece = std::size_t{256} << 10, small = std::size_t{2} << 20;
  const auto segments = std::make_shared<Segments>(
      host_allocator(), SegmentsOptions{.least = small / 2, .small = small, .fast_below = true, .limit = limit});
  const std::chrono::milliseconds patience(limit == unlimited ? 0 : 100);
  return std::make_shared<Pool>(segments, PoolOptions{.largest_piece = piece, .patience = patience});
}

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
  Device device = {.name = "host",
                   .engine = engine,
                   .lane = host_lane,
                   .memory = host_memory(memory_limit),
                   .kernels = host_kernels()};
  count_in_traces(engine, device.memory);
  return device;
}

}  // namespace windrow
