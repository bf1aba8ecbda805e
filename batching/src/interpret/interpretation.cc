#include "windrow/batching/backend/interpretation.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "windrow/ops/operators.h"

namespace windrow {

void Interpretation::require_kernels(const Plan& plan, const KernelTable<float>& kernels) {
  windrow::require_kernels(plan, kernels);
  for (const Operator* op : {&op::spread_rows, &op::gather_sum}) kernels.find(*op);
}

PlanOptions Interpretation::options_for(PlanOptions options) {
  options.slots = options.sharing = options.fusion = false;
  return options;
}

// --- Stages

void Interpretation::run_stage(const Stage& stage, Lane* lane) {
  const bool forward = stage.of == Passes::forward;
  if (forward) run_all(Phase::eager, lane);
  if (!forward && stage.batches.end == batch_count()) run_all(Phase::back_eager, lane);
  run_levels(forward ? Phase::level : Phase::back_level, stage.batches, lane);
  if (forward) run_all(Phase::lazy, lane);
  if (!forward && stage.batches.begin == 0) run_all(Phase::back_lazy, lane);
}

void Interpretation::run_all(Phase phase, Lane* lane) {
  for (std::size_t t = 0; t < plan_->types.size(); ++t) run_rows(phase, t, {0, layout_.types[t].rows}, lane);
}

void Interpretation::run_levels(Phase phase, Range batches, Lane* lane) {
  for (Index i = batches.begin; i < batches.end; ++i) {
    const Index number = phase == Phase::level ? i : batches.begin + batches.end - 1 - i;
    const Layout::BatchRows& batch = layout_.batches.front()[static_cast<std::size_t>(number)];  // of the only group
    run_rows(phase, batch.type, {batch.begin, batch.end}, lane);
  }
}

void Interpretation::run_rows(Phase phase, std::size_t type, Range vertices, Lane* lane) {
  for (Range batch{vertices.begin, 0}; batch.begin < vertices.end; batch.begin = batch.end) {
    batch.end = std::min(vertices.end - batch.begin, options_.batch_rows) + batch.begin;
    for (const Segment& segment : plan_->types[type].phases[static_cast<std::size_t>(phase)]) {
      run(segment, At{type, segment.rate, range(type, segment.rate, batch), lane});
    }
  }
}

void Interpretation::run(const Segment& segment, const At& at) {
  for (const Step& step : segment.steps) run(step, at);
}

void Interpretation::run(const Step& step, const At& at) {
  switch (step.does) {
    case Step::Does::kernel:
      return run_kernel(step, at, place(step.out, at));
    case Step::Does::fill:
      return fill(place(step.out, at), step.constant, step.write, at.lane);
    case Step::Does::gather:
      return gather(step, at);
    case Step::Does::incoming:
      return take_incoming(step, at);
    case Step::Does::gather_dot:
    case Step::Does::gather_weighted_sum:
      return read_in_place(step, at);
    case Step::Does::incoming_products:
      return take_incoming_products(step, at);
    case Step::Does::scatter:
      throw Error("a plan with slots is not interpreted");
  }
}

void Interpretation::call(const Operator& op, KernelCall<float> call, Lane* lane) const {
  call.op = &op;
  call.lane = lane;
  device_.kernels.find(op)(call, *device_.memory);
}

/// A step whose rows may lack an index is issued for each range of rows that have all of them; other rows are zero.
void Interpretation::run_kernel(const Step& step, const At& at, Matrix<float> out) {
  const bool sums = plan_->program.at(step.node).type.rows.counted();
  const auto& pulls = plan_->program.function->index_pulls;
  const auto lacks = [&](Index row) {
    return step.may_lack && std::ranges::any_of(step.indices, [&](std::size_t pull) {
             return pulls[pull].optional && *layout_.types[at.type].indices[pull].row(row) == -1;
           });
  };
  const auto issue = [&](Range rows, Matrix<float> to, Write write) {
    const At part{at.type, at.rate, rows, at.lane};
    std::vector<Matrix<const float>> in;
    for (const Place& place : step.in) in.push_back(operand(place, part));
    std::vector<Matrix<const std::int32_t>> indices;
    for (const std::size_t pull : step.indices) {
      const Index width = layout_.types[at.type].indices[pull].width;
      indices.push_back(
          {word(packed_.indices[at.type][pull]) + rows.begin * width, rows.end - rows.begin, width, width});
    }
    call(*step.op, {.in = in, .indices = indices, .out = to, .attributes = step.attributes, .write = write}, at.lane);
  };
  if (!step.may_lack) return issue(at.rows, out, step.write);
  if (sums && step.write == Write::overwrite) fill(out, 0, Write::overwrite, at.lane);
  for (Range run{at.rows.begin, at.rows.begin}; run.begin < at.rows.end; run.begin = run.end) {
    const bool lacking = lacks(run.begin);
    while (run.end < at.rows.end && lacks(run.end) == lacking) ++run.end;
    const Matrix<float> part{out.data + (run.begin - at.rows.begin) * out.stride, run.end - run.begin, out.width,
                             out.stride};
    if (!lacking) {
      issue(run, sums ? out : part, sums ? Write::add : step.write);
    } else if (!sums && step.write == Write::overwrite) {
      fill(part, 0, Write::overwrite, at.lane);
    }
  }
}

void Interpretation::fill(Matrix<float> out, float constant, Write write, Lane* lane) {
  if (out.rows == 0 || out.width == 0) return;
  const Matrix<const float> row{
      reinterpret_cast<const float*>(word(packed_.constants.at(std::bit_cast<std::uint32_t>(constant)))), 1, out.width,
      out.width};
  call(op::spread_rows, {.in = {&row, 1}, .out = out, .attributes = op::to_rows(Rows::count(out.rows)), .write = write},
       lane);
}

void Interpretation::gather_sum(Matrix<const float> from, const std::int32_t* words, const PackedGather& gather,
                                Range rows, Matrix<float> out, Write write, Lane* lane) {
  const Matrix<const std::int32_t> indices[] = {
      {words + gather.bounds + 2 * static_cast<std::size_t>(rows.begin), rows.end - rows.begin, 2, 2},
      {words + gather.order, gather.length, 1, 1}};
  call(op::gather_sum, {.in = {&from, 1}, .indices = indices, .out = out, .write = write}, lane);
}

template <class T>
static Matrix<T> columns_of(const Matrix<T>& matrix, Index begin, Index width) {
  return {matrix.data + begin, matrix.rows, width, matrix.stride};
}

/// Missing children have zeros.
void Interpretation::gather(const Step& step, const At& at) {
  const Matrix<float> to = place(step.out, at);
  fill(to, 0, Write::overwrite, at.lane);
  const TypePlan& here = plan_->types[at.type];
  const std::vector<Index>& column = here.states[here.link(step.state, at.rate)].column;
  for (const PackedLayout::Source& child : packed_.children[at.type]) {
    if (column[child.child] < 0) continue;
    const Place& stored = plan_->types[child.type].stored[step.state];
    if (stored.in == Place::In::nowhere) continue;
    const At all{child.type, Rate::vertices, {0, layout_.types[child.type].rows}, at.lane};
    const Matrix<const float> from = operand(stored, all);
    gather_sum(from, word(0), child.gather, at.rows, columns_of(to, column[child.child], from.width), Write::add,
               at.lane);
  }
}

void Interpretation::take_incoming(const Step& step, const At& at) {
  const Matrix<float> to = place(step.out, at);
  if (step.write == Write::overwrite) fill(to, 0, Write::overwrite, at.lane);
  for (const PackedLayout::Source& consumer : packed_.consumers[at.type]) {
    const TypePlan& type = plan_->types[consumer.type];
    const Rate rate = type.rate_of_child(consumer.child);
    const ChildSlots& slots = type.gradients[type.link(step.state, rate)];
    if (!slots.any() || slots.column[consumer.child] < 0) continue;
    const Matrix<const float> from{region(consumer.type, slots.region) + slots.column[consumer.child],
                                   layout_.count(consumer.type, rate), to.width, type.regions[slots.region].stride};
    gather_sum(from, word(0), consumer.gather, at.rows, to, Write::add, at.lane);
  }
}

/// Adds what the pairs of rows of x and y make to the rows of `out`.
void Interpretation::gather_pairs(const Operator& op, Matrix<const float> x, Matrix<const float> y,
                                  const PackedGather& gather, Range rows, Matrix<float> out, Lane* lane) {
  const Matrix<const float> in[] = {x, y};
  const Matrix<const std::int32_t> indices[] = {
      {word(gather.bounds + 2 * static_cast<std::size_t>(rows.begin)), rows.end - rows.begin, 2, 2},
      {word(gather.order), gather.length, 2, 2}};
  call(op, {.in = in, .indices = indices, .out = out, .write = Write::add}, lane);
}

void Interpretation::read_in_place(const Step& step, const At& at) {
  const Matrix<float> to = place(step.out, at);
  if (step.write == Write::overwrite) fill(to, 0, Write::overwrite, at.lane);
  const bool dot = step.does == Step::Does::gather_dot, of_edges = at.rate == Rate::edges;
  const Matrix<const float> operands = operand(step.in[0], at);  // of the other rate, so all rows
  const PackedLayout::Pairs& pairs = packed_.pairs[at.type];
  for (const PackedLayout::Source& child : of_edges ? pairs.of_edges : pairs.of_vertices) {
    const Place& stored = plan_->types[child.type].stored[step.state];
    if (child.child != step.child || stored.in == Place::In::nowhere) continue;
    const At all{child.type, Rate::vertices, {0, layout_.types[child.type].rows}, at.lane};
    const Index width = dot ? operands.width : to.width;
    gather_pairs(*step.op, columns_of(operand(stored, all), step.first_column, width), operands, child.gather, at.rows,
                 to, at.lane);
  }
}

void Interpretation::take_incoming_products(const Step& step, const At& at) {
  const Matrix<float> to = place(step.out, at);
  if (step.write == Write::overwrite) fill(to, 0, Write::overwrite, at.lane);
  for (const PackedLayout::Source& consumer : packed_.pairs[at.type].of_children) {
    for (const TypePlan::Product& product : plan_->types[consumer.type].products) {
      if (product.state != step.state || product.child != consumer.child) continue;
      const auto all = [&](Rate rate) {
        return At{consumer.type, rate, {0, layout_.count(consumer.type, rate)}, at.lane};
      };
      gather_pairs(*step.op, operand(product.row, all(Rate::vertices)), operand(product.factor, all(Rate::edges)),
                   consumer.gather, at.rows, columns_of(to, product.first_column, product.row.width), at.lane);
    }
  }
}

/// See HostExecution::run_untimed.
void Interpretation::run(const TensorStep& tensor_step, Lane* lane) {
  Step step = tensor_step.step;
  const Tensor::View view = tensors_[step.out.number].view();
  if (adds_to(step.out.number)) step.write = Write::add;
  const Matrix<float> tensor = step.write == Write::add ? view.update(lane) : view.write(lane);
  const Matrix<float> out = columns_of(tensor, step.out.column, step.out.width);
  if (step.does == Step::Does::fill) return fill(out, step.constant, step.write, lane);
  if (tensor_step.vertex_type < 0) return run_kernel(step, {0, step.rate, {0, 0}, lane}, out);
  const auto type = static_cast<std::size_t>(tensor_step.vertex_type);
  const Index rows = layout_.count(type, step.rate);
  const bool parts = plan_->program.at(step.node).op->locality == Locality::sums_rows;
  if (!parts || rows <= options_.batch_rows) return run_kernel(step, {type, step.rate, {0, rows}, lane}, out);
  for (Index begin = 0; begin < rows; begin += options_.batch_rows, step.write = Write::add) {
    run_kernel(step, {type, step.rate, {begin, std::min(begin + options_.batch_rows, rows)}, lane}, out);
  }
}

// --- Outputs

void Interpretation::collect(std::size_t output, std::vector<std::int32_t> row_of, const Tensor& out,
                             std::source_location from) {
  struct Part {
    std::size_t type;
    PackedGather gather;
  };
  // The last vertex of a row counts, as on the host.
  std::vector<VertexRow> source(static_cast<std::size_t>(out.rows()), {plan_->types.size(), 0});  // by row of `out`
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    for (Index r = 0; r < layout_.types[t].rows; ++r) {
      const std::int32_t vertex = layout_.types[t].vertex[static_cast<std::size_t>(r)];
      const std::int32_t row = row_of.empty() ? vertex : row_of[static_cast<std::size_t>(vertex)];
      if (row >= 0) source[static_cast<std::size_t>(row)] = {t, r};
    }
  }
  std::vector<std::vector<std::pair<Index, std::int32_t>>> rows(plan_->types.size());
  for (Index row = 0; row < out.rows(); ++row) {
    const auto [type, from_row] = source[static_cast<std::size_t>(row)];
    if (type < rows.size()) rows[type].push_back({row, static_cast<std::int32_t>(from_row)});
  }
  std::vector<Part> parts;
  PackedLayout::Words words;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    if (rows[t].empty() || plan_->types[t].pushes[output].in == Place::In::nowhere) continue;
    parts.push_back({t, PackedLayout::append(words, out.rows(), rows[t])});
  }
  device_.engine->push(
      [self = self(), output, parts = std::move(parts), words = std::move(words), view = out.view()](OpContext& op) {
        Lane* const lane = op.lane();
        // It may be read only when the next minibatch has been issued, and must not wait for that.
        if (lane != nullptr) lane->anticipate_next();
        Allocator& memory = *self->device_.memory;
        const Matrix<float> to = view.write(lane);
        self->fill(to, 0, Write::overwrite, lane);
        const std::size_t bytes = words.size() * sizeof(words[0]);
        std::byte* const start = memory.allocate(bytes);
        try {
          memory.upload(lane, start, reinterpret_cast<const std::byte*>(words.data()), CopyShape::contiguous(bytes));
          for (const Part& part : parts) {
            const At all{part.type, Rate::vertices, {0, self->layout_.types[part.type].rows}, lane};
            self->gather_sum(self->operand(self->plan_->types[part.type].pushes[output], all),
                             reinterpret_cast<const std::int32_t*>(start), part.gather, {0, to.rows}, to, Write::add,
                             lane);
          }
        } catch (...) {
          memory.deallocate(start, bytes);
          throw;
        }
        memory.deallocate(start, bytes);
      },
      {read(memory()), overwrite(out.var())}, {.name = "push", .lane = device_.lane, .pushed_at = from});
  if (!verdict_) return;
  // The device may have collected the output before the host has looked at the losses.
  device_.engine->push([self = self()] {}, {read(verdict_), mutate(out.var())},
                       {.name = "loss", .lane = verdict_lane(), .pushed_at = from});
}

}  // namespace windrow
