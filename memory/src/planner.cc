// The memory planner. Start here; lifetimes.h says what is alive together, placement.h finds places.
#include "windrow/memory/planner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lifetimes.h"
#include "placement.h"

namespace windrow {
namespace {

/// A plan for a partial order that the program implies, or that edges make.
struct Candidate {
  Lifetimes lifetimes;
  std::size_t lower_bound;
  Placement placement;
};

Candidate candidate(const BufferUses& uses, const PartialOrder& order, const MemoryPlanOptions& options) {
  Lifetimes lifetimes(uses, order);
  std::size_t bound = peak_of(lifetimes, uses, order.times());
  if (!order.is_by_time()) {
    bound = std::max(bound, peak_of(lifetimes, uses, PartialOrder::serial(uses).times()));
  }
  Placement placement = best_placement(lifetimes, bound, options.effort);
  return {std::move(lifetimes), bound, std::move(placement)};
}

std::size_t unshared_bytes(const MemoryProgram& program) {
  std::size_t sum = 0;
  for (const PlannedBuffer& buffer : program.buffers) {
    if (buffer.view_of != no_buffer) continue;
    sum += aligned_size(buffer.bytes, buffer.alignment);
    aligned_size(sum);  // throws if sums are not representable
  }
  return sum;
}

}  // namespace

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
  MemoryPlan plan{.unshared_bytes = unshared_bytes(program)};
  const bool serial = program.order == StepOrder::serial;
  const Candidate found =
      candidate(uses, serial ? PartialOrder::serial(uses) : PartialOrder::dependences(uses), options);
  std::vector<std::size_t> offset_of(program.buffers.size());
  for (std::size_t i = 0; i < found.lifetimes.buffers.size(); ++i) {
    offset_of[found.lifetimes.buffers[i].number] = found.placement.offsets[i];
    plan.alignment = std::max(plan.alignment, found.lifetimes.buffers[i].alignment);
  }
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    plan.offsets.push_back(offset_of[uses.root[i]] + uses.root_offset[i]);
  }
  plan.bytes = found.placement.bytes;
  plan.lower_bound = found.lower_bound;
  return plan;
}

}  // namespace windrow
