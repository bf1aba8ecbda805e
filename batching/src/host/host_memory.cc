// The memory of a minibatch: its size, and the places of values in it.
#include <algorithm>

#include "host/host_execution.h"
#include "run/tag.h"

namespace windrow {

Index HostExecution::scratch_of(const HostPlan& plan, const Layout& layout) {
  Index most = 0;
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    if (layout.types[t].rows > 0) most = std::max(most, plan.types[t].scratch);
  }
  return most;
}

HostExecution::HostExecution(const Device& device, std::shared_ptr<const Plan> plan,
                             std::shared_ptr<const HostPlan> lowered, Layout layout, std::vector<Tensor> tensors,
                             std::vector<char> needed, Options options)
    : Execution(device, std::move(plan), std::move(layout), std::move(tensors), std::move(options)),
      lowered_(std::move(lowered)),
      needed_(std::move(needed)),
      scratch_(device.memory, scratch_of(*lowered_, layout_)) {
  map_memory();
}

/// Only types that have rows get regions. A plan may have many other types, which must not take time here.
void HostExecution::map_memory() {
  offsets_.assign(plan_->regions, 0);
  Index size = 0;
  const auto take = [&](std::size_t t, std::size_t begin, std::size_t end) {
    const TypePlan& type = plan_->types[t];
    for (std::size_t r = begin; r < end; ++r) {
      offsets_[type.first_region + r] = size;
      size += aligned(layout_.count(t, type.regions[r].rate) * type.regions[r].stride);
    }
  };
  const auto each_type = [&](auto visit) {
    for (std::size_t t = 0; t < plan_->types.size(); ++t) {
      if (layout_.types[t].rows > 0) visit(t, plan_->types[t]);
    }
  };
  each_type([&](std::size_t t, const TypePlan& type) { take(t, 0, type.arenas.size()); });
  each_type([&](std::size_t t, const TypePlan& type) { take(t, type.arenas.size(), type.regions.size()); });
  memory_ = std::make_shared<Buffer>(device_.engine, device_.memory, static_cast<std::size_t>(size) * sizeof(float),
                                     OpName("minibatch"));
}

void HostExecution::take_memory() {
  data_ = reinterpret_cast<float*>(memory_->bytes().write_unwatched());
  clear_missing(data_);
}

/// Clears the slots that may belong to missing children: no vertex scatters to these.
void HostExecution::clear_missing(float* values) const {
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    if (layout_.types[t].rows == 0 || !plan_->program.lacks_children(t)) continue;
    const TypePlan& type = plan_->types[t];
    for (std::size_t r = type.arenas.size(); r < type.arenas.size() + type.state_regions; ++r) {
      std::fill_n(values + offsets_[type.first_region + r],
                  layout_.count(t, type.regions[r].rate) * type.regions[r].stride, 0.0f);
    }
  }
}

Var HostExecution::add_op_var() {
  op_vars_.push_back(tag(device_.engine, "op of a minibatch"));
  return op_vars_.back().var();
}

Matrix<float> HostExecution::place(const Place& place, const Tile& tile) const {
  const TypePlan& plan = plan_->types[tile.type];
  const Range rows = place.rate == tile.rate ? tile.rows : Range{0, layout_.count(tile.type, place.rate)};
  const Index count = rows.end - rows.begin;
  switch (place.in) {
    case Place::In::arena: {
      const Index stride = plan.regions[place.number].stride;
      return {region(plan, place.number, tile) + rows.begin * stride + place.column, count, place.width, stride};
    }
    case Place::In::local: {
      const Index width = plan.locals[place.number], offset = lowered_->types[tile.type].local_offsets[place.number];
      float* const first = tile.scratch + offset + (rows.begin - tile.first_in_scratch) * width;
      return {first + place.column, count, place.width, width};
    }
    case Place::In::state:
    case Place::In::state_gradient: {
      const ChildSlots& slots = (place.in == Place::In::state ? plan.states : plan.gradients)[place.number];
      const Index stride = plan.regions[slots.region].stride;
      return {region(plan, slots.region, tile) + rows.begin * stride + place.column, count, place.width, stride};
    }
    default:
      throw Error("a step writes what is only read");
  }
}

Matrix<const float> HostExecution::operand(const Place& from, const Tile& tile) const {
  if (from.in == Place::In::tensor) {
    Matrix<const float> whole = tensors_[from.number].view().read();
    return {whole.data + from.column, whole.rows, from.width, whole.stride};
  }
  if (from.in == Place::In::pull) {
    const auto& column = layout_.types[tile.type].values[from.number];
    const Range rows = from.rate == tile.rate ? tile.rows : Range{0, layout_.count(tile.type, from.rate)};
    return {column.row(rows.begin) + from.column, rows.end - rows.begin, from.width, column.width};
  }
  return place(from, tile);
}

std::int64_t HostExecution::bytes_of(const Step& step, const Tile& tile) const {
  if (step.counts == Step::Counts::product) return 0;
  const Index here = tile.rows.end - tile.rows.begin;
  const auto elements = [&](const Place& place) {
    if (place.in == Place::In::nowhere) return Index{0};
    if (place.in == Place::In::tensor) return tensors_[place.number].rows() * place.width;
    if (place.rate == tile.rate) return here * place.width;
    // Passed as a whole; the tile touches its share.
    return here * layout_.count(tile.type, place.rate) / std::max<Index>(layout_.count(tile.type, tile.rate), 1) *
           place.width;
  };
  Index rows = 0, tables = 0, out = elements(step.out);
  for (const Place& place : step.in) (place.in == Place::In::tensor ? tables : rows) += elements(place);
  const auto slots = [&] {  // of consumers; a row usually has one
    const auto& further = layout_.types[tile.type].further;
    const auto from = [&](Index row) {
      return std::lower_bound(further.begin(), further.end(), TypeRows::Further{static_cast<std::int32_t>(row)});
    };
    return here + (from(tile.rows.end) - from(tile.rows.begin));
  };
  switch (step.does) {
    case Step::Does::scatter:
      out = slots() * step.in[0].width;
      break;
    case Step::Does::gather:
      rows = out;
      break;
    case Step::Does::gather_dot:
      rows += here * step.in[0].width;
      break;
    case Step::Does::gather_weighted_sum:
      rows += tile.rate == Rate::edges ? out : rows * out / std::max<Index>(here, 1);
      break;
    case Step::Does::incoming_products:
    case Step::Does::incoming:
      rows = slots() * step.out.width;
      break;
    default:
      break;
  }
  if (!step.indices.empty()) {  // touches only the rows of tables that the indices name
    tables = std::min(tables, std::max(rows, out));
    out = std::min(out, std::max(rows, tables));
  }
  return (rows + tables + (step.write == Write::add ? 2 : 1) * out) * static_cast<Index>(sizeof(float));
}

}  // namespace windrow
