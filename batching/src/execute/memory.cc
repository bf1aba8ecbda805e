// The memory of a minibatch: its size, and where values lie in it.
#include <algorithm>
#include <utility>

#include "execute/scratch.h"
#include "layout/layout_memory.h"
#include "run/owned_var.h"
#include "run/runner_notes.h"
#include "windrow/batching/internal/execution.h"

namespace windrow {
namespace {

/// The most elements that the tiles of one segment take.
Index tile_elements(const Plan& plan, const Layout& layout) {
  Index most = 0;
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    if (layout.types[t].rows > 0) most = std::max(most, plan.types[t].tile_elements);
  }
  return most;
}

/// The memory of the layout, which it makes unless it was made ahead.
const MinibatchMemory& memory_of(const Device& device, const Plan& plan, Layout& layout, Execution::Ops ops) {
  if (layout.memory == nullptr) {
    layout.memory = std::make_shared<const MinibatchMemory>(device, plan, layout, MinibatchMemory::Choices{.ops = ops});
  }
  return *layout.memory;
}

}  // namespace

MinibatchMemory::MinibatchMemory(const Device& device, const Plan& plan, const Layout& layout, const Choices& choices) {
  place_values(device, plan, layout, choices);
  packed =
      PackedLayout(plan, layout, {.columns = choices.ops == Ops::in_order, .gathers = choices.gathers && !plan.slots});
}

std::size_t MinibatchMemory::bytes(Ops ops) const {
  const std::size_t words = ops == Ops::in_order ? packed.words.size() : 0;
  return static_cast<std::size_t>(elements) * sizeof(float) + words * sizeof(packed.words[0]);
}

Execution::Execution(const Device& device, std::shared_ptr<const Plan> plan, Layout layout, std::vector<Tensor> tensors,
                     Options options, Ops ops, std::vector<char> needed)
    : device_(device),
      plan_(std::move(plan)),
      layout_(std::move(layout)),
      tensors_(std::move(tensors)),
      options_(std::move(options)),
      ops_(ops),
      needed_(std::move(needed)),
      adds_to_(tensors_.size(), 0),
      end_(std::make_shared<MinibatchEnd>(device)),
      notes_(std::make_unique<RunnerNotes>()),
      placed_(memory_of(device_, *plan_, layout_, ops_)),
      memory_(std::make_shared<Buffer>(device_.engine, device_.memory, placed_.bytes(ops_), OpName("minibatch"),
                                       device_.memory_lane())),
      tiles_(in_order() ? nullptr : std::make_unique<Scratch>(device_.memory, tile_elements(*plan_, layout_))) {}

Execution::~Execution() {
  if (options_.layouts != nullptr) options_.layouts->give_back(std::move(layout_));
}

/// Only types that have rows get regions. A plan may have many other types, which must not take time here.
void MinibatchMemory::place_values(const Device& device, const Plan& plan, const Layout& layout,
                                   const Choices& choices) {
  offsets.assign(plan.regions, 0);
  locals.resize(choices.locals.size());
  const auto line = static_cast<Index>(device.memory->alignment() / sizeof(float));
  const auto take = [&](Index count) {
    const Index begin = elements;
    elements = (elements + count + line - 1) / line * line;
    return begin;
  };
  std::vector<char> placed(plan.regions, 0);
  const auto take_region = [&](std::size_t t, std::size_t number) {
    const TypePlan& type = plan.types[t];
    if (std::exchange(placed[type.first_region + number], 1) != 0) return;
    offsets[type.first_region + number] =
        take(layout.count(t, type.regions[number].rate) * type.regions[number].stride);
  };
  const auto each_type = [&](auto visit) {
    for (std::size_t t = 0; t < plan.types.size(); ++t) {
      if (layout.types[t].rows > 0) visit(t, plan.types[t]);
    }
  };
  // Losses are contiguous, so that one copy takes them to the host.
  each_type([&](std::size_t t, const TypePlan& type) {
    for (const Place& loss : type.losses) {
      if (loss.in == Place::In::arena) take_region(t, loss.number);
    }
  });
  losses = elements;
  each_type([&](std::size_t t, const TypePlan& type) {
    for (std::size_t r = 0; r < type.arenas.size(); ++r) take_region(t, r);
  });
  each_type([&](std::size_t t, const TypePlan& type) {
    for (std::size_t r = type.arenas.size(); r < type.regions.size(); ++r) take_region(t, r);
    if (choices.locals.empty()) return;
    for (std::size_t i = 0; i < type.locals.size(); ++i) {
      const std::optional<Rate> rate = choices.locals[t][i];
      locals[t].push_back(take(rate ? layout.count(t, *rate) * device.row_stride(type.locals[i]) : 0));
    }
  });
}

void Execution::take_memory(Lane* lane) {
  const Bytes bytes = memory_->bytes();
  if (in_order()) {
    data_ = reinterpret_cast<float*>(bytes.write(lane));
    words_ = reinterpret_cast<const std::int32_t*>(data_ + placed_.elements);
    bytes.memory().upload(lane, reinterpret_cast<std::byte*>(data_ + placed_.elements),
                          reinterpret_cast<const std::byte*>(placed_.packed.words.data()),
                          CopyShape::contiguous(placed_.packed.words.size() * sizeof(placed_.packed.words[0])));
  } else {
    data_ = reinterpret_cast<float*>(bytes.write_unwatched());
    words_ = placed_.packed.words.data();
  }
  if (plan_->slots) clear_missing(lane);
}

/// Clears the slots that may belong to missing children: no vertex scatters to these.
void Execution::clear_missing(Lane* lane) const {
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    if (layout_.types[t].rows == 0 || !plan_->program.lacks_children(t)) continue;
    const TypePlan& type = plan_->types[t];
    for (std::size_t r = type.arenas.size(); r < type.arenas.size() + type.state_regions; ++r) {
      const Index count = layout_.count(t, type.regions[r].rate) * type.regions[r].stride;
      device_.memory->clear(lane, reinterpret_cast<std::byte*>(region(t, r)),
                            static_cast<std::size_t>(count) * sizeof(float));
    }
  }
}

Var Execution::add_op_var() {
  op_vars_.push_back(owned_var(device_.engine, "op of a minibatch"));
  return op_vars_.back().var();
}

Tensor Execution::rows_of(const Plan::Rows& rows) const {
  const auto type = static_cast<std::size_t>(rows.vertex_type);
  const TypePlan& plan = plan_->types[type];
  const Index stride = plan.regions[rows.rows.number].stride;
  return Tensor(memory_, layout_.count(type, rows.rows.rate), stride,
                placed_.offsets[plan.first_region + rows.rows.number])
      .column_range(rows.rows.column, rows.rows.column + rows.rows.width);
}

std::vector<IntTensor> Execution::segments_of(const Plan::Rows& rows) const {
  if (!in_order()) return {};
  const PackedLayout::Segments& found = placed_.packed.segments[static_cast<std::size_t>(&rows - plan_->rows.data())];
  const auto at = [&](std::size_t word) { return placed_.elements + static_cast<Index>(word); };
  return {IntTensor(memory_, found.count, 3, at(found.bounds)), IntTensor(memory_, found.length, 1, at(found.order))};
}

// --- Places

Execution::Range Execution::range(std::size_t type, Rate rate, Range vertices) const {
  if (rate == Rate::vertices) return vertices;
  const auto& begin = layout_.types[type].edge_begin;
  return {begin[static_cast<std::size_t>(vertices.begin)], begin[static_cast<std::size_t>(vertices.end)]};
}

Matrix<float> Execution::place(const Place& place, const At& at) const {
  const TypePlan& type = plan_->types[at.type];
  const Range rows = place.rate == at.rate ? at.rows : Range{0, layout_.count(at.type, place.rate)};
  const Index count = rows.end - rows.begin;
  std::size_t number = place.number;  // of the region; arenas come first
  switch (place.in) {
    case Place::In::local: {
      const Index width = type.locals[number];
      if (!in_order()) {
        float* const first = at.tile + type.local_offsets[number] + (rows.begin - at.first_in_tile) * width;
        return {first + place.column, count, place.width, width};
      }
      const Index stride = device_.row_stride(width);
      return {data_ + placed_.locals[at.type][number] + rows.begin * stride + place.column, count, place.width, stride};
    }
    case Place::In::arena:
      break;
    case Place::In::state:
      number = type.states[number].region;
      break;
    case Place::In::state_gradient:
      number = type.gradients[number].region;
      break;
    default:
      throw Error("a step writes what is only read");
  }
  const Index stride = type.regions[number].stride;
  return {region(at.type, number) + rows.begin * stride + place.column, count, place.width, stride};
}

/// Calls nothing, since it takes a large part of the time of small steps.
[[gnu::flatten]] Matrix<const float> Execution::operand(const Place& from, const At& at) const {
  if (from.in == Place::In::tensor) {
    const Matrix<const float> whole = tensors_[from.number].view().read(at.lane);
    return {whole.data + from.column, whole.rows, from.width, whole.stride};
  }
  if (from.in == Place::In::pull) {
    const auto& column = layout_.types[at.type].values[from.number];
    const Range rows = from.rate == at.rate ? at.rows : Range{0, layout_.count(at.type, from.rate)};
    const float* const first = in_order()
                                   ? reinterpret_cast<const float*>(word(placed_.packed.values[at.type][from.number]))
                                   : column.elements.data();
    return {first + rows.begin * column.width + from.column, rows.end - rows.begin, from.width, column.width};
  }
  return place(from, at);
}

}  // namespace windrow
