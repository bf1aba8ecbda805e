// A memory planner: gives the buffers of a program places in one block of memory, so that buffers that are never alive
// together share bytes.
//
//   MemoryProgram program;
//   const auto x = program.add(PlannedBuffer{.bytes = 4096, .held = Held::before});  // an input
//   const auto h = program.add(PlannedBuffer{.bytes = 4096});
//   const auto y = program.add(PlannedBuffer{.bytes = 4096, .held = Held::after});   // a result
//   program.add(PlannedStep{.reads = {x}, .writes = {h}});
//   program.add(PlannedStep{.reads = {h}, .writes = {y}, .in_place = {{.operand = h, .result = y}}});
//   const MemoryPlan plan = plan_memory(program);  // plan.offsets[h] == plan.offsets[y]
//
// A pure function: it knows neither engines nor devices, and allocates nothing of what it plans.
//
// Contract
//   Order    The caller runs the steps in an order that the plan was made for (StepOrder).
//   Result   Two buffers share bytes only if all steps that use the one finish before any step that uses the other
//            begins; or where InPlace allows it. The same program gives the same plan.
//   Threads  Any thread, concurrently.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "windrow/memory/allocator.h"

namespace windrow {

/// Whether a buffer is alive before the first step, or after the last one, even if no step uses it.
enum class Held : std::uint8_t {
  no,          ///< alive from the first step that uses it to the last one
  before,      ///< from before the program to its last use, such as an input
  after,       ///< from its first use on, such as a result
  throughout,  ///< always: it shares bytes with nothing, not even with the next run of the program
};

inline constexpr std::uint32_t no_buffer = std::numeric_limits<std::uint32_t>::max();

struct PlannedBuffer {
  std::size_t bytes = 0;
  Held held = Held::no;
};

/// Permission for a step: the result may begin where the operand begins if this step is the last to use the operand and
/// the first to use the result. The step must give the right result if they overlap in this way.
struct InPlace {
  std::uint32_t operand, result;
};

struct PlannedStep {
  /// Buffers by number. If several steps may fill a buffer concurrently, an earlier step writes it and they read it.
  /// For example, one step allocates the memory of a table, and then each of others fills some rows.
  std::vector<std::uint32_t> reads = {}, writes = {};
  std::vector<InPlace> in_place = {};  ///< of buffers that it reads, and buffers that it writes
};

/// Which steps finish before others begin.
enum class StepOrder : std::uint8_t {
  serial,  ///< one at a time, in the order of the list
  /// As an engine orders ops: the readers of a buffer after its last writer, a writer after all earlier users.
  /// Everything else may run concurrently, or in any order.
  dependences,
};

struct MemoryProgram {
  std::vector<PlannedBuffer> buffers = {};
  std::vector<PlannedStep> steps = {};
  StepOrder order = StepOrder::serial;
  std::size_t alignment = memory_alignment;  ///< of all buffers, a power of two

  /// Adds a buffer or a step; returns its number.
  std::uint32_t add(PlannedBuffer buffer);
  std::uint32_t add(PlannedStep step);
};

struct MemoryPlan {
  /// Where each buffer begins, in bytes from the start of the block. 0 for buffers that take no bytes: of size 0, or
  /// neither used nor held.
  std::vector<std::size_t> offsets = {};
  std::size_t bytes = 0;           ///< of the block
  std::size_t unshared_bytes = 0;  ///< of all buffers without sharing
};

/// Plans the memory of a program. Takes time and memory that grow with the square of the number of buffers and steps.
/// Throws OutOfMemory if sizes overflow.
///
/// Preconditions: numbers name buffers of the program. A buffer that is not held before the program is written by a
/// step before those that read it. InPlace names buffers that the step reads and writes.
MemoryPlan plan_memory(const MemoryProgram& program);

}  // namespace windrow
