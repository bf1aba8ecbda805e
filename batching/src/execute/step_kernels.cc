// Runs the phases, segments and steps of a minibatch. A step calls a kernel of its operator, or copies rows.
#include "execute/step_kernels.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "execute/post_mortem.h"
#include "execute/scratch.h"
#include "execute/step_clock.h"
#include "windrow/ops/internal/inline_array.h"
#include "windrow/ops/operators.h"

namespace windrow {

PlanOptions Execution::options_for(PlanOptions options) {
  options.slots = options.sharing = options.fusion = false;
  return options;
}

void Execution::run_op(const std::vector<PhaseRows>& stage, Lane* lane) {
  if (in_order()) return run_stage(stage, {.lane = lane});
  std::optional<StepLap> lap;
  if (options_.clock != nullptr) lap.emplace(*options_.clock);
  run_stage(stage, {.tile = tiles_->of_this_thread(), .lap = lap ? &*lap : nullptr});
}

void Execution::run_stage(const std::vector<PhaseRows>& stage, const At& at) {
  for (const PhaseRows& rows : stage) run(rows, at);
}

void Execution::run(const PhaseRows& rows, const At& at) {
  each_segment(rows, at, [&](const Segment& segment, const At& here) { run(segment, here); });
}

void Execution::run(const Segment& segment, const At& at) {
  each_step(segment, at, [&](const Step& step, const At& here) {
    try {
      run(step, here);
    } catch (const std::exception& error) {
      PostMortem post_mortem(*this);
      if (in_order() || !post_mortem.explains(error)) throw;
      post_mortem.explain(step, here, error.what());
    }
    if (here.lap == nullptr) return;
    here.lap->end_of(step, here.rows.end - here.rows.begin, StepKernels(*this).bytes_of(step, here));
  });
}

void Execution::run(const Step& step, const At& at) { StepKernels(*this).run(step, at); }

// --- One step

void StepKernels::run(const Step& step, const At& at) const {
  switch (step.does) {
    case Step::Does::kernel:
      return run_kernel(step, at, of_.place(step.out, at));
    case Step::Does::fill:
      return fill(of_.place(step.out, at), step.constant, step.write, at.lane);
    case Step::Does::scatter:
      return scatter(step, at);
    case Step::Does::gather:
      return gather(step, at);
    case Step::Does::incoming:
      return of_.in_order() ? gather_incoming(step, at) : add_incoming(step, at);
    case Step::Does::gather_dot:
    case Step::Does::gather_weighted_sum:
      return read_in_place(step, at);
    case Step::Does::incoming_products:
      return take_incoming_products(step, at);
  }
}

/// A back end may leave a plan without kernels.
Kernel<float> StepKernels::kernel_of(const Step& step) const {
  return step.kernel ? step.kernel : of_.device_.kernels.find(*step.op);
}

void StepKernels::fill(Matrix<float> out, float value, Write write, Lane* lane) const {
  if (!of_.in_order()) {
    for (Index r = 0; r < out.rows; ++r) {
      float* const to = out.row(r);
      if (write == Write::overwrite) {
        std::fill_n(to, out.width, value);
      } else {
        for (Index c = 0; c < out.width; ++c) to[c] += value;
      }
    }
    return;
  }
  if (out.rows == 0 || out.width == 0) return;
  const std::int32_t* const constant = of_.word(of_.placed_.packed.constants.at(std::bit_cast<std::uint32_t>(value)));
  const Matrix<const float> row{reinterpret_cast<const float*>(constant), 1, out.width, out.width};
  call(op::spread_rows, {.in = {&row, 1}, .out = out, .attributes = op::to_rows(Rows::count(out.rows)), .write = write},
       lane);
}

void StepKernels::run_kernel(const Step& step, const At& at, Matrix<float> out) const {
  const bool without_copy = step.without_copy.op != nullptr && !of_.needs(step.in[1].number);
  const InlineArray<Matrix<const float>, 4> in(step.in.size(), [&](std::size_t k) {
    return of_.operand(without_copy && k == 1 ? step.without_copy.factor : step.in[k], at);
  });
  const InlineArray<Matrix<const std::int32_t>, 4> indices(step.indices.size(), [&](std::size_t k) {
    const std::size_t pull = step.indices[k];
    const auto& column = of_.layout_.types[at.type].indices[pull];
    const std::int32_t* const first =
        of_.in_order() ? of_.word(of_.placed_.packed.indices[at.type][pull]) : column.elements.data();
    return Matrix<const std::int32_t>{first + at.rows.begin * column.width, at.rows.end - at.rows.begin, column.width,
                                      column.width};
  });
  const Kernel<float> kernel = without_copy ? step.without_copy.kernel : kernel_of(step);
  const KernelCall<float> call{
      in, indices, out, step.attributes, step.write, without_copy ? step.without_copy.op : step.op, at.lane};
  if (step.may_lack) return run_where_present(step, at, kernel, call);
  kernel(call, *of_.device_.memory);
}

/// Calls the kernel for each range of rows that have all indices, and sets other rows to zero. The result may overwrite
/// an operand.
void StepKernels::run_where_present(const Step& step, const At& at, const Kernel<float>& kernel,
                                    const KernelCall<float>& call) const {
  const auto& pulls = of_.plan_->program.function->index_pulls;
  const bool sums = of_.plan_->program.at(step.node).type.rows.counted();
  const auto lacks = [&](Index r) {
    return std::ranges::any_of(step.indices, [&](std::size_t pull) {
      return pulls[pull].optional && *of_.layout_.types[at.type].indices[pull].row(at.rows.begin + r) == -1;
    });
  };
  std::vector<Matrix<const float>> in(call.in.begin(), call.in.end());
  std::vector<Matrix<const std::int32_t>> indices(call.indices.begin(), call.indices.end());
  if (sums && call.write == Write::overwrite) fill(call.out, 0, Write::overwrite, at.lane);
  const Index rows = at.rows.end - at.rows.begin;
  for (Range run{0, 0}; run.begin < rows; run.begin = run.end) {
    const bool lacking = lacks(run.begin);
    while (run.end < rows && lacks(run.end) == lacking) ++run.end;
    const auto part = [&](auto matrix) {
      matrix.data += run.begin * matrix.stride;
      matrix.rows = run.end - run.begin;
      return matrix;
    };
    if (lacking) {
      if (!sums && call.write == Write::overwrite) fill(part(call.out), 0, Write::overwrite, at.lane);
      continue;
    }
    for (std::size_t k = 0; k < in.size(); ++k) {
      const bool of_rows = step.in[k].in != Place::In::tensor && step.in[k].rate == at.rate;
      if (of_rows) in[k] = part(call.in[k]);
    }
    for (std::size_t k = 0; k < indices.size(); ++k) indices[k] = part(call.indices[k]);
    kernel({in, indices, sums ? call.out : part(call.out), call.attributes, sums ? Write::add : call.write, call.op,
            at.lane},
           *of_.device_.memory);
  }
}

// --- Times of steps

std::int64_t StepKernels::bytes_of(const Step& step, const At& at) const {
  if (step.counts == Step::Counts::product) return 0;
  const Index here = at.rows.end - at.rows.begin;
  const auto elements = [&](const Place& place) {
    if (place.in == Place::In::nowhere) return Index{0};
    if (place.in == Place::In::tensor)
      return (step.indices.empty() ? of_.tensors_[place.number].rows() : here) * place.width;
    if (place.rate == at.rate) return here * place.width;
    // The operand is passed as a whole, but the tile reads only its share.
    const Index all = std::max<Index>(of_.layout_.count(at.type, at.rate), 1);
    return here * of_.layout_.count(at.type, place.rate) / all * place.width;
  };
  Index in = 0, out = elements(step.out);
  for (const Place& place : step.in) in += elements(place);
  if (step.does == Step::Does::scatter) out = in;
  if (step.does > Step::Does::scatter) in += std::max(in, out);  // rows of other vertices
  return (in + (step.write == Write::add ? 2 : 1) * out) * static_cast<Index>(sizeof(float));
}

// --- Steps of tensors, which belong to no vertex

void TensorSteps::begin_in_blocks(std::size_t tensor) const {
  const Tensor::View view = of_.tensors_[tensor].view();
  of_.adds_to(tensor) ? view.update() : view.write();
}

void TensorSteps::run(const TensorStep& step, Lane* lane) const {
  const Tensor::View view = of_.tensors_[step.step.out.number].view();
  const bool adds = step.step.write == Write::add || of_.adds_to(step.step.out.number);
  run_timed(step, adds ? view.update(lane) : view.write(lane), lane);
}

Execution::At TensorSteps::all_rows(const TensorStep& step, Lane* lane) const {
  return of_.all_rows(static_cast<std::size_t>(step.vertex_type), step.step.rate, lane);
}

bool TensorSteps::may_be_one_of_each(const TensorStep& one) const {
  const Step& step = one.step;
  if (!of_.in_order() || one.vertex_type < 0 || step.does != Step::Does::kernel || step.in.size() != 1 ||
      step.in[0].in == Place::In::tensor || step.op->locality != Locality::sums_rows ||
      StepKernels(of_).kernel_of(step).run_each == nullptr) {
    return false;
  }
  const Tensor& tensor = of_.tensors_[step.out.number];
  const bool at_once = of_.plan_->lazy && all_rows(one, nullptr).rows.end <= of_.options_.batch_rows;
  return at_once && step.out.width == tensor.width();
}

void TensorSteps::run_each(const std::vector<const TensorStep*>& steps, Lane* lane) const {
  std::vector<Matrix<const float>> in;
  for (const TensorStep* one : steps) in.push_back(of_.operand(one->step.in[0], all_rows(*one, lane)));
  std::vector<KernelCall<float>> calls;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i]->step;
    const Tensor::View view = of_.tensors_[step.out.number].view();
    const bool adds = step.write == Write::add || of_.adds_to(step.out.number);
    calls.push_back({.in = {&in[i], 1},
                     .out = adds ? view.update(lane) : view.write(lane),
                     .attributes = step.attributes,
                     .write = adds ? Write::add : Write::overwrite,
                     .op = step.op,
                     .lane = lane});
  }
  StepKernels(of_).kernel_of(steps.front()->step).each(calls, *of_.device_.memory);
}

void TensorSteps::run(const TensorStep& part, Execution::Range columns) const {
  TensorStep step = part;
  const Index width = columns.end - columns.begin;
  step.step.flops_a_row = step.step.flops_a_row / step.step.out.width * width;
  for (Place* place : {&step.step.in[1], &step.step.out}) {
    place->column += columns.begin;
    place->width = width;
  }
  run_timed(step, of_.tensors_[step.step.out.number].view().update(), nullptr);
}

void TensorSteps::run_timed(const TensorStep& step, Matrix<float> tensor, Lane* lane) const {
  std::optional<StepLap> lap;
  if (of_.options_.clock != nullptr && !of_.in_order()) lap.emplace(*of_.options_.clock);
  run(step, tensor, lane);
  if (!lap) return;
  const auto type = static_cast<std::size_t>(std::max(step.vertex_type, 0));
  const Index rows = step.vertex_type < 0 ? 0 : of_.layout_.count(type, step.step.rate);
  lap->end_of(step.step, rows, StepKernels(of_).bytes_of(step.step, {type, step.step.rate, {0, rows}}));
}

void TensorSteps::run(const TensorStep& tensor_step, Matrix<float> tensor, Lane* lane) const {
  Step step = tensor_step.step;
  if (of_.adds_to(step.out.number)) step.write = Write::add;
  const Matrix<float> out{tensor.data + step.out.column, tensor.rows, step.out.width, tensor.stride};
  if (step.does == Step::Does::fill) return StepKernels(of_).fill(out, step.constant, step.write, lane);
  const auto type = static_cast<std::size_t>(std::max(tensor_step.vertex_type, 0));
  const auto run_rows = [&](Execution::Range rows) {
    StepKernels(of_).run_kernel(step, {.type = type, .rate = step.rate, .rows = rows, .lane = lane}, out);
    step.write = Write::add;
  };
  const Index rows = tensor_step.vertex_type < 0 ? 0 : of_.layout_.count(type, step.rate);
  const bool in_parts = rows > 0 && of_.plan_->program.at(step.node).op->locality == Locality::sums_rows;
  if (in_parts && of_.options_.batch_rows < rows) {
    for (Index begin = 0; begin < rows; begin += of_.options_.batch_rows) {
      run_rows({begin, std::min(begin + of_.options_.batch_rows, rows)});
    }
  } else if (in_parts && !of_.plan_->lazy) {
    for (const auto& batches : of_.layout_.batches) {
      for (const Layout::BatchRows& batch : batches) {
        if (batch.type == type) run_rows(of_.range(type, step.rate, {batch.begin, batch.end}));
      }
    }
  } else {
    run_rows({0, rows});
  }
}

}  // namespace windrow
