#include "batch.h"

#include <algorithm>
#include <cstring>

#include "windrow/ops/operators.h"

namespace windrow {
namespace {

void fill(Matrix<float> out, float value, Write write) {
  for (Index r = 0; r < out.rows; ++r) {
    for (Index c = 0; c < out.width; ++c) {
      float& to = out.row(r)[c];
      to = write == Write::add ? to + value : value;
    }
  }
}

/// What a consumer's row of its children's states is followed by, in elements; see row_stride().
Index gap(Index width) { return row_stride(width) - width; }

}  // namespace

Batch::Batch(const Device& device, std::shared_ptr<const Plan> plan, Layout layout, std::vector<Tensor> tensors,
             Options options)
    : device_(device),
      plan_(std::move(plan)),
      layout_(std::move(layout)),
      tensors_(std::move(tensors)),
      options_(options) {
  map_memory();
  for (Index g = 0; g < layout_.groups; ++g) {
    groups_.push_back(Buffer(*device_.engine, device_.memory, 0, "group of samples"));
  }
}

void Batch::map_memory() {
  Index size = 0;
  const auto take = [&](Index elements) {
    const Index offset = size;
    size += aligned(elements);
    return offset;
  };
  Index scratch = 0;
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    auto& arenas = arenas_.emplace_back();
    for (Index width : plan_->types[t].arenas) arenas.push_back(take(layout_.types[t].rows * row_stride(width)));
    scratch = std::max(scratch, plan_->types[t].scratch);
  }
  for (const ir::Field& state : plan_->program.function->states) {
    const Index elements = layout_.edges * state.width + layout_.consumers * gap(state.width);
    states_.push_back(take(elements));
    gradients_.push_back(plan_->training ? take(elements) : 0);
  }
  for (Index g = 0; g < layout_.groups; ++g) scratch_.push_back(take(scratch));
  memory_ = std::make_shared<Buffer>(*device_.engine, device_.memory, static_cast<std::size_t>(size) * sizeof(float),
                                     OpName("minibatch"));
}

void Batch::take_memory() { data_ = reinterpret_cast<float*>(memory_->bytes().write_unwatched()); }

Batch::Range Batch::range(std::size_t type, Index group, const Stage& stage) const {
  if (!stage.scheduled()) return {layout_.begin(type, group), layout_.begin(type, group + 1)};
  const Layout::Batch& batch = layout_.batches[static_cast<std::size_t>(group)][static_cast<std::size_t>(stage.batch)];
  return batch.type == type ? Range{batch.begin, batch.end} : Range{0, 0};
}

std::pair<std::size_t, std::size_t> Batch::types(Index group, const Stage& stage) const {
  if (!stage.scheduled()) return {0, plan_->types.size()};
  const auto& batches = layout_.batches[static_cast<std::size_t>(group)];
  const std::size_t type = batches[static_cast<std::size_t>(stage.batch)].type;
  return {type, type + 1};
}

// --- Steps

void Batch::run(Index group, const Stage& stage) {
  each_step(group, stage, [&](std::size_t t, const Step& step, Range rows) {
    try {
      run_step(t, group, step, rows);
    } catch (const MisuseError& error) {
      explain(t, group, step, rows, error.what());
    }
  });
}

void Batch::run_step(std::size_t type, Index group, const Step& step, Range rows) {
  switch (step.does) {
    case Step::Does::kernel:
      return run_kernel(type, group, step, rows, place(type, group, step.out, rows));
    case Step::Does::fill:
      return fill(place(type, group, step.out, rows), step.constant, step.write);
    case Step::Does::scatter:
      return scatter(type, step, operand(type, group, step.in[0], rows), rows);
    case Step::Does::incoming:
      return take_incoming(type, step, place(type, group, step.out, rows), rows);
  }
}

void Batch::run_kernel(std::size_t type, Index group, const Step& step, Range rows, Matrix<float> out) {
  constexpr std::size_t usual = 8;
  std::array<Matrix<const float>, usual> few;
  std::vector<Matrix<const float>> many(step.in.size() > usual ? step.in.size() : 0);
  const std::span<Matrix<const float>> in(many.empty() ? few.data() : many.data(), step.in.size());
  for (std::size_t k = 0; k < in.size(); ++k) in[k] = operand(type, group, step.in[k], rows);
  std::array<Matrix<const std::int32_t>, usual> indices;
  if (step.indices.size() > usual) throw Error("an operator with more than 8 index operands");
  for (std::size_t k = 0; k < step.indices.size(); ++k) {
    const auto& column = layout_.types[type].indices[step.indices[k]];
    indices[k] = {column.row(rows.begin), rows.end - rows.begin, column.width, column.width};
  }
  step.kernel({in, {indices.data(), step.indices.size()}, out, step.attributes, step.write});
}

void Batch::scatter(std::size_t type, const Step& step, Matrix<const float> from, Range rows) {
  const TypeRows& here = layout_.types[type];
  const auto bytes = static_cast<std::size_t>(from.width) * sizeof(float);
  for (Index r = rows.begin; r < rows.end; ++r) {
    const Slot to = here.slot[static_cast<std::size_t>(r)];
    if (to.edge >= 0) std::memcpy(slot(states_, step.state, to), from.row(r - rows.begin), bytes);
  }
  const TypeRows::Further first{static_cast<std::int32_t>(rows.begin)};
  auto more = std::lower_bound(here.further.begin(), here.further.end(), first);
  for (; more != here.further.end() && more->row < rows.end; ++more) {
    std::memcpy(slot(states_, step.state, more->slot), from.row(more->row - rows.begin), bytes);
  }
}

void Batch::take_incoming(std::size_t type, const Step& step, Matrix<float> to, Range rows) {
  const TypeRows& here = layout_.types[type];
  const auto add = [&](float* row, Slot from) {
    const float* gradient = slot(gradients_, step.state, from);
    for (Index c = 0; c < to.width; ++c) row[c] += gradient[c];
  };
  for (Index r = rows.begin; r < rows.end; ++r) {
    float* row = to.row(r - rows.begin);
    const Slot from = here.slot[static_cast<std::size_t>(r)];
    if (step.write == Write::add) {
      if (from.edge >= 0) add(row, from);
    } else if (from.edge >= 0) {
      std::copy_n(slot(gradients_, step.state, from), to.width, row);
    } else {
      std::fill_n(row, to.width, 0.0f);
    }
  }
  const TypeRows::Further first{static_cast<std::int32_t>(rows.begin)};
  auto more = std::lower_bound(here.further.begin(), here.further.end(), first);
  for (; more != here.further.end() && more->row < rows.end; ++more) add(to.row(more->row - rows.begin), more->slot);
}

// --- Places

float* Batch::slot(const std::vector<Index>& states, std::size_t state, Slot slot) const {
  const Index width = plan_->program.function->states[state].width;
  return data_ + states[state] + slot.edge * width + slot.consumer * gap(width);
}

Matrix<float> Batch::place(std::size_t type, Index group, const Place& place, Range rows) const {
  const TypePlan& plan = plan_->types[type];
  const Index count = rows.end - rows.begin;
  switch (place.in) {
    case Place::In::arena: {
      const Index stride = row_stride(plan.arenas[place.number]);
      return {data_ + arenas_[type][place.number] + rows.begin * stride + place.column, count, place.width, stride};
    }
    case Place::In::tile: {
      const TypePlan::Tile& tile = plan.tiles[place.number];
      const Index scratch = scratch_[static_cast<std::size_t>(group)];
      return {data_ + scratch + tile.offset + place.column, count, place.width, tile.width};
    }
    case Place::In::state:
    case Place::In::state_gradient: {
      const auto& states = place.in == Place::In::state ? states_ : gradients_;
      const Index width = plan_->program.function->states[place.number].width;
      const Index stride = plan.children * width + gap(width);
      float* first = slot(states, place.number, layout_.types[type].first_slot);
      return {first + rows.begin * stride + place.column, count, place.width, stride};
    }
    default:
      throw Error("a step writes what is only read");
  }
}

Matrix<const float> Batch::operand(std::size_t type, Index group, const Place& from, Range rows) const {
  if (from.in == Place::In::tensor) {
    Matrix<const float> whole = tensors_[from.number].view().read();
    return {whole.data + from.column, whole.rows, from.width, whole.stride};
  }
  if (from.in == Place::In::pull) {
    const auto& column = layout_.types[type].values[from.number];
    return {column.row(rows.begin) + from.column, rows.end - rows.begin, from.width, column.width};
  }
  return place(type, group, from, rows);
}

// --- What belongs to no vertex, and the end

void Batch::run(const TensorStep& tensor_step) {
  const Step& step = tensor_step.step;
  const Tensor& tensor = tensors_[step.out.number];
  Matrix<float> out = step.write == Write::add ? tensor.view().update() : tensor.view().write();
  out = {out.data + step.out.column, out.rows, step.out.width, out.stride};
  if (step.does == Step::Does::fill) return fill(out, step.constant, step.write);
  if (tensor_step.vertex_type < 0) return run_kernel(0, 0, step, {0, 0}, out);
  const auto type = static_cast<std::size_t>(tensor_step.vertex_type);
  const Index rows = layout_.types[type].rows;
  if (options_.batch_rows >= rows || plan_->program.at(step.node).op->locality != Locality::sums_rows) {
    return run_kernel(type, 0, step, {0, rows}, out);
  }
  Step part = step;
  for (Index begin = 0; begin < rows; begin += options_.batch_rows, part.write = Write::add) {
    run_kernel(type, 0, part, {begin, std::min(begin + options_.batch_rows, rows)}, out);
  }
}

Tensor Batch::rows_of(const Plan::Rows& rows) const {
  const auto type = static_cast<std::size_t>(rows.vertex_type);
  const Index offset = arenas_[type][rows.rows.number];
  const Index stride = row_stride(plan_->types[type].arenas[rows.rows.number]);
  return Tensor(memory_, layout_.types[type].rows, stride, offset)
      .column_range(rows.rows.column, rows.rows.column + rows.rows.width);
}

void Batch::collect(std::size_t push, Matrix<float> out) const {
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    const TypeRows& type = layout_.types[t];
    const Matrix<const float> from = operand(t, 0, plan_->types[t].pushes[push], {0, type.rows});
    for (Index r = 0; r < from.rows; ++r) {
      std::copy_n(from.row(r), from.width, out.row(type.vertex[static_cast<std::size_t>(r)]));
    }
  }
}

}  // namespace windrow
