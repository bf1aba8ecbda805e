// The memory planner. Start here; lifetimes.h says what is alive together, placement.h finds places.
#include "windrow/memory/planner.h"

#include <algorithm>
#include <utility>

#include "lifetimes.h"
#include "placement.h"

namespace windrow {

std::uint32_t MemoryProgram::add(PlannedBuffer buffer) {
  buffers.push_back(buffer);
  return static_cast<std::uint32_t>(buffers.size() - 1);
}

std::uint32_t MemoryProgram::add(PlannedStep step) {
  steps.push_back(std::move(step));
  return static_cast<std::uint32_t>(steps.size() - 1);
}

MemoryPlan plan_memory(const MemoryProgram& program, const MemoryPlanOptions& options) {
  const BufferUses uses(program);
  MemoryPlan plan;
  for (const PlannedBuffer& buffer : program.buffers) {
    if (buffer.view_of != no_buffer) continue;
    plan.unshared_bytes += aligned_size(buffer.bytes, buffer.alignment);
    aligned_size(plan.unshared_bytes);  // throws if sums are not representable
  }
  const Lifetimes lifetimes(uses);
  plan.lower_bound = lifetimes.peak();
  const Placement placement = best_placement(lifetimes, plan.lower_bound, options.effort);
  plan.bytes = placement.bytes;
  std::vector<std::size_t> offset_of(program.buffers.size());
  for (std::size_t i = 0; i < lifetimes.buffers.size(); ++i) {
    offset_of[lifetimes.buffers[i].number] = placement.offsets[i];
    plan.alignment = std::max(plan.alignment, lifetimes.buffers[i].alignment);
  }
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    plan.offsets.push_back(offset_of[uses.root[i]] + uses.root_offset[i]);
  }
  return plan;
}

}  // namespace windrow
