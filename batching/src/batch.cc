#include "batch.h"

#include <algorithm>
#include <cstring>
#include <optional>

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

/// For tiles. A thread runs one op at a time, and finds what it wrote last still in its cache.
float* scratch_of_thread(Index elements) {
  struct Free {
    void operator()(float* scratch) const { ::operator delete(scratch, std::align_val_t(memory_alignment)); }
  };
  thread_local std::unique_ptr<float, Free> scratch;
  thread_local Index size = 0;
  if (size < elements) {
    const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
    scratch.reset(static_cast<float*>(::operator new(bytes, std::align_val_t(memory_alignment))));
    size = elements;
  }
  return scratch.get();
}

}  // namespace

Batch::Batch(const Device& device, std::shared_ptr<const Plan> plan, Layout layout, std::vector<Tensor> tensors,
             std::vector<char> needed, Options options)
    : device_(device),
      plan_(std::move(plan)),
      layout_(std::move(layout)),
      tensors_(std::move(tensors)),
      needed_(std::move(needed)),
      adds_to_(tensors_.size(), 0),
      options_(options),
      end_(std::make_shared<MinibatchEnd>(device)) {
  map_memory();
}

void Batch::map_memory() {
  Index size = 0;
  const auto take = [&](Index elements) {
    const Index offset = size;
    size += aligned(elements);
    return offset;
  };
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    auto& arenas = arenas_.emplace_back();
    for (const TypePlan::Arena& arena : plan_->types[t].arenas) {
      arenas.push_back(take(layout_.count(t, arena.rate) * row_stride(arena.width)));
    }
    scratch_ = std::max(scratch_, plan_->types[t].scratch);
  }
  const auto keep = [&](Keepers& keepers, std::size_t t, const std::vector<Kept>& states, const char* in_states) {
    keepers.resize(states.size());
    for (std::size_t s = 0; s < states.size(); ++s) {
      Keeping keeping;
      if (states[s].any()) {
        keeping.stride = row_stride(states[s].width);
        keeping.offset = in_states != nullptr && in_states[s] != 0
                             ? states_[s][t].offset
                             : take(layout_.count(t, plan_->types[t].children) * keeping.stride);
        keeping.kept = &states[s];
      }
      keepers[s].push_back(keeping);
    }
  };
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    keep(states_, t, plan_->types[t].states, nullptr);
    keep(gradients_, t, plan_->types[t].gradients, plan_->types[t].takes_over.data());
  }
  memory_ = std::make_shared<Buffer>(*device_.engine, device_.memory, static_cast<std::size_t>(size) * sizeof(float),
                                     OpName("minibatch"));
}

void Batch::take_memory() {
  data_ = reinterpret_cast<float*>(memory_->bytes().write_unwatched());
  clear_missing();
}

/// Nobody scatters to the places of children that are not there.
void Batch::clear_missing() {
  for (const auto& by_type : states_) {
    for (std::size_t t = 0; t < by_type.size(); ++t) {
      if (by_type[t].kept == nullptr || !plan_->program.lacks_children(t)) continue;
      std::fill_n(data_ + by_type[t].offset, layout_.count(t, plan_->types[t].children) * by_type[t].stride, 0.0f);
    }
  }
}

Batch::Range Batch::range(std::size_t type, Rate rate, Range vertices) const {
  if (rate == Rate::vertices) return vertices;
  const auto& begin = layout_.types[type].edge_begin;
  return {begin[static_cast<std::size_t>(vertices.begin)], begin[static_cast<std::size_t>(vertices.end)]};
}

// --- Steps

void Batch::run(const Part& part) {
  std::optional<StepClock::Lap> lap;
  if (options_.clock) lap.emplace(*options_.clock);
  each_step(part, [&](const Step& step, const Tile& tile) {
    try {
      run_step(step, tile);
    } catch (const std::exception& error) {
      if (!explains(error)) throw;
      explain(step, tile, error.what());
    }
    if (lap) lap->end_of(step);
  });
}

void Batch::run_step(const Step& step, const Tile& tile) {
  switch (step.does) {
    case Step::Does::kernel:
      return run_kernel(step, tile, place(step.out, tile));
    case Step::Does::fill:
      return fill(place(step.out, tile), step.constant, step.write);
    case Step::Does::scatter:
      return scatter(step, tile);
    case Step::Does::gather:
      return gather(step, tile);
    case Step::Does::incoming:
      return take_incoming(step, tile);
  }
}

void Batch::run_kernel(const Step& step, const Tile& tile, Matrix<float> out) {
  constexpr std::size_t usual = 8;
  std::array<Matrix<const float>, usual> few;
  std::vector<Matrix<const float>> many(step.in.size() > usual ? step.in.size() : 0);
  const std::span<Matrix<const float>> in(many.empty() ? few.data() : many.data(), step.in.size());
  const bool direct = step.direct.kernel != nullptr && !needs(step.in[1].number);
  for (std::size_t k = 0; k < in.size(); ++k) {
    in[k] = operand(direct && k == 1 ? step.direct.factor : step.in[k], tile);
  }
  std::array<Matrix<const std::int32_t>, usual> indices;
  if (step.indices.size() > usual) throw Error("an operator with more than 8 index operands");
  for (std::size_t k = 0; k < step.indices.size(); ++k) {
    const auto& column = layout_.types[tile.type].indices[step.indices[k]];
    indices[k] = {column.row(tile.rows.begin), tile.rows.end - tile.rows.begin, column.width, column.width};
  }
  const Kernel<float> kernel = direct ? step.direct.kernel : step.kernel;
  const KernelCall<float> call{in, {indices.data(), step.indices.size()}, out, step.attributes, step.write};
  if (step.may_lack) return run_where_present(step, tile, kernel, call);
  kernel(call);
}

/// One call for each run of neighbouring rows that have all indices. What is written may lie where an operand lies.
void Batch::run_where_present(const Step& step, const Tile& tile, Kernel<float> kernel,
                              const KernelCall<float>& call) const {
  const auto& pulls = plan_->program.function->index_pulls;
  const bool sums = plan_->program.at(step.node).type.rows.counted();
  const auto lacks = [&](Index r) {
    for (std::size_t k = 0; k < step.indices.size(); ++k) {
      if (pulls[step.indices[k]].optional && *call.indices[k].row(r) == -1) return true;
    }
    return false;
  };
  std::vector<Matrix<const float>> in(call.in.begin(), call.in.end());
  std::vector<Matrix<const std::int32_t>> indices(call.indices.begin(), call.indices.end());
  if (sums && call.write == Write::overwrite) fill(call.out, 0, Write::overwrite);
  const Index rows = tile.rows.end - tile.rows.begin;
  for (Range run{0, 0}; run.begin < rows; run.begin = run.end) {
    const bool lacking = lacks(run.begin);
    while (run.end < rows && lacks(run.end) == lacking) ++run.end;
    const auto part = [&](auto matrix) {
      matrix.data += run.begin * matrix.stride;
      matrix.rows = run.end - run.begin;
      return matrix;
    };
    if (lacking) {
      if (!sums && call.write == Write::overwrite) fill(part(call.out), 0, Write::overwrite);
      continue;
    }
    for (std::size_t k = 0; k < in.size(); ++k) {
      const bool of_rows = step.in[k].in != Place::In::tensor && step.in[k].rate == tile.rate;
      if (of_rows) in[k] = part(call.in[k]);
    }
    for (std::size_t k = 0; k < indices.size(); ++k) indices[k] = part(call.indices[k]);
    kernel({in, indices, sums ? call.out : part(call.out), call.attributes, sums ? Write::add : call.write});
  }
}

template <class Visit>
void Batch::each_kept(const Keepers& keepers, std::size_t state, const Tile& tile, Visit visit) const {
  const TypeRows& here = layout_.types[tile.type];
  const auto& by_type = keepers[state];
  const auto look = [&](Index row, Slot slot) {
    const Keeping& keeping = by_type[slot.type];
    if (keeping.kept == nullptr || keeping.kept->column[slot.child] < 0) return;
    visit(row - tile.rows.begin, data_ + keeping.offset + slot.row * keeping.stride + keeping.kept->column[slot.child]);
  };
  for (Index r = tile.rows.begin; r < tile.rows.end; ++r) {
    const Slot slot = layout_.slot(tile.type, r);
    if (slot.row >= 0) look(r, slot);
  }
  const TypeRows::Further first{static_cast<std::int32_t>(tile.rows.begin)};
  auto more = std::lower_bound(here.further.begin(), here.further.end(), first);
  for (; more != here.further.end() && more->row < tile.rows.end; ++more) look(more->row, more->slot);
}

void Batch::scatter(const Step& step, const Tile& tile) {
  const Matrix<const float> from = operand(step.in[0], tile);
  const auto bytes = static_cast<std::size_t>(from.width) * sizeof(float);
  if (bytes == 0) return;  // there may be no memory either, which memcpy does not take
  each_kept(states_, step.state, tile, [&](Index row, float* to) { std::memcpy(to, from.row(row), bytes); });
}

/// Copies what each child has stored. Places of children that are not there are left as they are.
void Batch::gather(const Step& step, const Tile& tile) {
  const Matrix<float> to = place(step.out, tile);
  const std::vector<Index>& column = plan_->types[tile.type].states[step.state].column;
  const Producer* producer =
      layout_.types[tile.type].producers.data() + tile.rows.begin * static_cast<Index>(column.size());
  Matrix<const float> from{};
  std::size_t type = plan_->types.size();  // that `from` is of: neighbours' children are mostly of one
  for (Index r = 0; r < to.rows; ++r) {
    for (std::size_t k = 0; k < column.size(); ++k, ++producer) {
      if (producer->row < 0 || column[k] < 0) continue;
      if (producer->type != type) {
        type = producer->type;
        const Tile all{type, Rate::vertices, {0, layout_.types[type].rows}};
        from = operand(plan_->types[type].stored[step.state], all);
      }
      std::copy_n(from.row(producer->row), from.width, to.row(r) + column[k]);
    }
  }
}

void Batch::take_incoming(const Step& step, const Tile& tile) {
  const Matrix<float> to = place(step.out, tile);
  if (step.write == Write::overwrite) fill(to, 0, Write::overwrite);
  each_kept(gradients_, step.state, tile, [&](Index row, const float* gradient) {
    float* const sum = to.row(row);
    for (Index c = 0; c < to.width; ++c) sum[c] += gradient[c];
  });
}

// --- Places

Matrix<float> Batch::place(const Place& place, const Tile& tile) const {
  const TypePlan& plan = plan_->types[tile.type];
  const Range rows = place.rate == tile.rate ? tile.rows : Range{0, layout_.count(tile.type, place.rate)};
  const Index count = rows.end - rows.begin;
  switch (place.in) {
    case Place::In::arena: {
      const Index stride = row_stride(plan.arenas[place.number].width);
      return {data_ + arenas_[tile.type][place.number] + rows.begin * stride + place.column, count, place.width,
              stride};
    }
    case Place::In::tile: {
      const TypePlan::Tile& scratch = plan.tiles[place.number];
      return {scratch_of_thread(scratch_) + scratch.offset + place.column, count, place.width, scratch.width};
    }
    case Place::In::state:
    case Place::In::state_gradient: {
      const Keepers& keepers = place.in == Place::In::state ? states_ : gradients_;
      const Keeping& keeping = keepers[place.number][tile.type];
      return {data_ + keeping.offset + rows.begin * keeping.stride + place.column, count, place.width, keeping.stride};
    }
    default:
      throw Error("a step writes what is only read");
  }
}

Matrix<const float> Batch::operand(const Place& from, const Tile& tile) const {
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

// --- What belongs to no vertex, and the end

std::vector<Var> Batch::inputs() const {
  const std::size_t come_first = plan_->program.function->tensors.size();
  std::vector<Var> vars;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const TensorSpec& spec = plan_->tensors[i];
    const bool comes_later = spec.is == TensorSpec::Is::given && spec.number >= come_first;
    if (spec.is != TensorSpec::Is::gradient && !comes_later) vars.push_back(tensors_[i].var());
  }
  return vars;
}

Var Batch::add_part() {
  parts_.push_back(Buffer(*device_.engine, device_.memory, 0, "part of a minibatch"));
  return parts_.back().var();
}

void Batch::begin_in_blocks(std::size_t tensor) {
  const Tensor::View view = tensors_[tensor].view();
  adds_to(tensor) ? view.update() : view.write();
}

void Batch::run(const TensorStep& step) {
  const Tensor::View view = tensors_[step.step.out.number].view();
  const bool adds = step.step.write == Write::add || adds_to(step.step.out.number);
  run_timed(step, adds ? view.update() : view.write());
}

void Batch::run(const TensorStep& part, Range columns) {
  TensorStep step = part;
  const Index width = columns.end - columns.begin;
  for (Place* place : {&step.step.in[1], &step.step.out}) {
    place->column += columns.begin;
    place->width = width;
  }
  run_timed(step, tensors_[step.step.out.number].view().update());
}

void Batch::run_timed(const TensorStep& step, Matrix<float> tensor) {
  std::optional<StepClock::Lap> lap;
  if (options_.clock) lap.emplace(*options_.clock);
  run_untimed(step, tensor);
  if (lap) lap->end_of(step.step);
}

void Batch::run_untimed(const TensorStep& tensor_step, Matrix<float> tensor) {
  Step step = tensor_step.step;
  if (adds_to(step.out.number)) step.write = Write::add;
  const Matrix<float> out{tensor.data + step.out.column, tensor.rows, step.out.width, tensor.stride};
  if (step.does == Step::Does::fill) return fill(out, step.constant, step.write);
  if (tensor_step.vertex_type < 0) return run_kernel(step, {0, step.rate, {0, 0}}, out);
  const auto type = static_cast<std::size_t>(tensor_step.vertex_type);
  const Index rows = layout_.count(type, step.rate);
  const bool parts = plan_->program.at(step.node).op->locality == Locality::sums_rows;
  if (!parts || (options_.batch_rows >= rows && plan_->lazy)) {
    return run_kernel(step, {type, step.rate, {0, rows}}, out);
  }
  if (options_.batch_rows < rows) {
    for (Index begin = 0; begin < rows; begin += options_.batch_rows, step.write = Write::add) {
      run_kernel(step, {type, step.rate, {begin, std::min(begin + options_.batch_rows, rows)}}, out);
    }
    return;
  }
  if (rows == 0) run_kernel(step, {type, step.rate, {0, 0}}, out);
  for (const auto& batches : layout_.batches) {
    for (const Layout::Batch& batch : batches) {
      if (batch.type != type) continue;
      run_kernel(step, {type, step.rate, range(type, step.rate, {batch.begin, batch.end})}, out);
      step.write = Write::add;
    }
  }
}

Tensor Batch::rows_of(const Plan::Rows& rows) const {
  const auto type = static_cast<std::size_t>(rows.vertex_type);
  const Index offset = arenas_[type][rows.rows.number];
  const Index stride = row_stride(plan_->types[type].arenas[rows.rows.number].width);
  return Tensor(memory_, layout_.count(type, rows.rows.rate), stride, offset)
      .column_range(rows.rows.column, rows.rows.column + rows.rows.width);
}

void Batch::collect(std::size_t push, const std::vector<std::int32_t>& row_of, Matrix<float> out) const {
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    const TypeRows& type = layout_.types[t];
    if (type.rows == 0) continue;
    const Place& place = plan_->types[t].pushes[push];
    const Tile all{t, Rate::vertices, {0, type.rows}};
    const Matrix<const float> from = place.in == Place::In::nowhere ? Matrix<const float>{} : operand(place, all);
    for (Index r = 0; r < type.rows; ++r) {
      const std::int32_t vertex = type.vertex[static_cast<std::size_t>(r)];
      const std::int32_t row = row_of.empty() ? vertex : row_of[static_cast<std::size_t>(vertex)];
      if (row < 0) continue;
      float* const to = out.row(row);
      if (from.data == nullptr) {
        std::fill_n(to, out.width, 0.0f);
      } else {
        std::copy_n(from.row(r), from.width, to);
      }
    }
  }
}

}  // namespace windrow
