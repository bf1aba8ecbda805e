#include "host/host_execution.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "host/push.h"
#include "windrow/ops/operators.h"
#include "windrow/ops/row_sums.h"

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

}  // namespace

// --- Stages

void HostExecution::forward(const Pushing& pushing) {
  Push push(self(), pushing);
  push.memory();
  push.before();
  for (Index g = 0; g < layout_.groups; ++g) push.group(g, Push::Passes::forward);
  push.finish();
}

void HostExecution::differentiate(const Pushing& pushing) {
  Push push(self(), pushing);
  push.memory();
  push.before();
  for (Index g = 0; g < layout_.groups; ++g) push.group(g, Push::Passes::both);
  push.early();
  push.finish();
  push.after();
}

void HostExecution::backward(const Pushing& pushing) {
  Push push(self(), pushing);
  for (Index g = 0; g < layout_.groups; ++g) push.group(g, Push::Passes::backward);
  push.early();
  push.seal();
  push.after();
}

// --- Steps

void HostExecution::run(const std::vector<Part>& parts) {
  std::optional<StepClock::Lap> lap;
  if (options_.clock) lap.emplace(*options_.clock);
  float* const scratch = scratch_.of_this_thread();
  const auto visit = [&](const HostStep& step, const Tile& tile) {
    try {
      run_step(step, tile);
    } catch (const std::exception& error) {
      if (!explains(error)) throw;
      explain(step, tile, error.what());
    }
    if (lap) lap->end_of(step, tile.rows.end - tile.rows.begin, bytes_of(step, tile));
  };
  for (const Part& part : parts) each_step(part, {scratch}, visit);
}

void HostExecution::run_step(const HostStep& step, const Tile& tile) {
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
    case Step::Does::gather_dot:
    case Step::Does::gather_weighted_sum:
      return read_in_place(step, tile);
    case Step::Does::incoming_products:
      return take_incoming_products(step, tile);
  }
}

namespace {

/// Elements on the stack, or on the heap if there are more than `few`. Few, because they are initialised at each use.
template <class T, std::size_t few>
class FewOrMany {
 public:
  explicit FewOrMany(std::size_t size) : size_(size), many_(size > few ? size : 0) {}
  std::span<T> span() { return {size_ > few ? many_.data() : few_.data(), size_}; }

 private:
  const std::size_t size_;
  std::array<T, few> few_;
  std::vector<T> many_;
};

}  // namespace

void HostExecution::run_kernel(const HostStep& step, const Tile& tile, Matrix<float> out) {
  FewOrMany<Matrix<const float>, 4> inputs(step.in.size());
  const auto in = inputs.span();
  const bool direct = step.direct.op != nullptr && !needs(step.in[1].number);
  for (std::size_t k = 0; k < in.size(); ++k) {
    in[k] = operand(direct && k == 1 ? step.direct.factor : step.in[k], tile);
  }
  FewOrMany<Matrix<const std::int32_t>, 4> index_inputs(step.indices.size());
  const auto indices = index_inputs.span();
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const auto& column = layout_.types[tile.type].indices[step.indices[k]];
    indices[k] = {column.row(tile.rows.begin), tile.rows.end - tile.rows.begin, column.width, column.width};
  }
  const Kernel<float>& kernel = direct ? step.direct.kernel : step.kernel;
  const KernelCall<float> call{in, indices, out, step.attributes, step.write, direct ? step.direct.op : step.op};
  if (step.may_lack) return run_where_present(step, tile, kernel, call);
  kernel(call, *device_.memory);
}

/// Calls the kernel for each range of rows that have all indices. The result may lie in the place of an operand.
void HostExecution::run_where_present(const Step& step, const Tile& tile, const Kernel<float>& kernel,
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
    kernel({in, indices, sums ? call.out : part(call.out), call.attributes, sums ? Write::add : call.write, call.op},
           *device_.memory);
  }
}

template <class Visit, class VisitMore>
void HostExecution::each_slot(SlotsOf slots_of, std::size_t state, const Tile& tile, Visit visit,
                              VisitMore visit_more) const {
  const TypeRows& here = layout_.types[tile.type];
  std::size_t type = plan_->types.size();  // of the last consumer; neighbours usually have consumers of one type
  Rate of_rate = Rate::vertices;
  const ChildSlots* slots = nullptr;
  float* memory = nullptr;
  Index stride = 0;
  const auto look = [&](Index row, Slot slot, auto& visit_slot) {
    const Rate rate = plan_->types[slot.type].rate_of_child(slot.child);
    if (slot.type != type || rate != of_rate) {
      type = slot.type;
      of_rate = rate;
      const TypePlan& consumer = plan_->types[type];
      slots = &(consumer.*slots_of)[consumer.link(state, rate)];
      if (slots->any()) memory = region(consumer, slots->region, tile);
      stride = slots->any() ? consumer.regions[slots->region].stride : 0;
    }
    if (!slots->any() || slots->column[slot.child] < 0) return;
    visit_slot(row - tile.rows.begin, memory + slot.row * stride + slots->column[slot.child]);
  };
  for (Index r = tile.rows.begin; r < tile.rows.end; ++r) {
    const Slot slot = layout_.slot(tile.type, r);
    if (slot.row >= 0) look(r, slot, visit);
  }
  const TypeRows::Further first{static_cast<std::int32_t>(tile.rows.begin)};
  auto more = std::lower_bound(here.further.begin(), here.further.end(), first);
  for (; more != here.further.end() && more->row < tile.rows.end; ++more) look(more->row, more->slot, visit_more);
}

void HostExecution::scatter(const Step& step, const Tile& tile) {
  const Matrix<const float> from = operand(step.in[0], tile);
  const auto bytes = static_cast<std::size_t>(from.width) * sizeof(float);
  if (bytes == 0) return;  // the pointers may be null, which memcpy does not allow
  const auto copy = [&](Index row, float* to) { std::memcpy(to, from.row(row), bytes); };
  each_slot(&TypePlan::states, step.state, tile, copy, copy);
}

/// Copies the stored state of each child. Leaves the slots of missing children unchanged.
void HostExecution::gather(const Step& step, const Tile& tile) {
  const Matrix<float> to = place(step.out, tile);
  const TypePlan& here = plan_->types[tile.type];
  const bool by_number = tile.rate == Rate::vertices;
  const std::size_t children = by_number ? here.by_number : here.per_edge;
  const Index* const column =
      here.states[here.link(step.state, tile.rate)].column.data() + (by_number ? 0 : here.by_number);
  const Producer* producer =
      layout_.producers(tile.type, tile.rate).data() + tile.rows.begin * static_cast<Index>(children);
  Matrix<const float> from{};
  std::size_t type = plan_->types.size();  // of `from`; neighbours usually have children of one type
  for (Index r = 0; r < to.rows; ++r) {
    for (std::size_t k = 0; k < children; ++k, ++producer) {
      if (producer->row < 0 || column[k] < 0) continue;
      if (producer->type != type) {
        type = producer->type;
        const Tile all{
            .type = type, .rate = Rate::vertices, .rows = {0, layout_.types[type].rows}, .values = tile.values};
        from = operand(plan_->types[type].stored[step.state], all);
      }
      std::copy_n(from.row(producer->row), from.width, to.row(r) + column[k]);
    }
  }
}

void HostExecution::take_incoming(const Step& step, const Tile& tile) {
  const Matrix<float> to = place(step.out, tile);
  if (step.write == Write::overwrite) fill(to, 0, Write::overwrite);
  const auto add = [](const float* gradient, float* sum, Index n) {
    for (Index c = 0; c < n; ++c) sum[c] += gradient[c];
  };
  std::vector<const float*> more;  // gradients of one row, which may have very many consumers
  Index row_of_more = 0;
  const auto add_more = [&] {
    if (more.empty()) return;
    add_rows(
        to.row(row_of_more), to.width, static_cast<Index>(more.size()),
        [&](Index i, Index begin, float* sum, Index n) { add(more[static_cast<std::size_t>(i)] + begin, sum, n); });
    more.clear();
  };
  each_slot(
      &TypePlan::gradients, step.state, tile,
      [&](Index row, const float* gradient) { add(gradient, to.row(row), to.width); },
      [&](Index row, const float* gradient) {
        if (row != row_of_more) add_more();
        row_of_more = row;
        more.push_back(gradient);
      });
  add_more();
}

// --- Tensors that belong to no vertex, and outputs

void HostExecution::begin_in_blocks(std::size_t tensor) {
  const Tensor::View view = tensors_[tensor].view();
  adds_to(tensor) ? view.update() : view.write();
}

void HostExecution::run(const HostTensorStep& step) {
  const Tensor::View view = tensors_[step.step.out.number].view();
  const bool adds = step.step.write == Write::add || adds_to(step.step.out.number);
  run_timed(step, adds ? view.update() : view.write());
}

void HostExecution::run(const HostTensorStep& part, Range columns) {
  HostTensorStep step = part;
  const Index width = columns.end - columns.begin;
  step.step.flops_a_row = step.step.flops_a_row / step.step.out.width * width;
  for (Place* place : {&step.step.in[1], &step.step.out}) {
    place->column += columns.begin;
    place->width = width;
  }
  run_timed(step, tensors_[step.step.out.number].view().update());
}

void HostExecution::run_timed(const HostTensorStep& step, Matrix<float> tensor) {
  std::optional<StepClock::Lap> lap;
  if (options_.clock) lap.emplace(*options_.clock);
  run_untimed(step, tensor);
  if (!lap) return;
  const auto type = static_cast<std::size_t>(std::max(step.vertex_type, 0));
  const Index rows = step.vertex_type < 0 ? 0 : layout_.count(type, step.step.rate);
  lap->end_of(step.step, rows, bytes_of(step.step, {type, step.step.rate, {0, rows}}));
}

void HostExecution::run_untimed(const HostTensorStep& tensor_step, Matrix<float> tensor) {
  HostStep step = tensor_step.step;
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
    for (const Layout::BatchRows& batch : batches) {
      if (batch.type != type) continue;
      run_kernel(step, {type, step.rate, range(type, step.rate, {batch.begin, batch.end})}, out);
      step.write = Write::add;
    }
  }
}

void HostExecution::collect(std::size_t output, std::vector<std::int32_t> row_of, const Tensor& out,
                            std::source_location from) {
  device_.engine->push([self = self(), output, row_of = std::move(row_of),
                        to = out.view()] { self->collect(output, row_of, to.write()); },
                       {read(memory()), overwrite(out.var())},
                       {.name = "push", .lane = device_.lane, .pushed_at = from});
}

void HostExecution::collect(std::size_t push, const std::vector<std::int32_t>& row_of, Matrix<float> out) const {
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
