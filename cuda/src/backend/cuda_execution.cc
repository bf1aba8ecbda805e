#include "backend/cuda_execution.h"

#include <algorithm>
#include <utility>

#include "windrow/ops/operators.h"

namespace windrow::cuda {

CudaExecution::CudaExecution(const Device& device, std::shared_ptr<const Plan> plan,
                             std::shared_ptr<const CudaPlan> cuda, Layout layout, std::vector<Tensor> tensors,
                             const Options& options)
    : Execution(device, std::move(plan), std::move(layout), std::move(tensors), options),
      cuda_(std::move(cuda)),
      words_(static_cast<const CudaMemory&>(*layout_.memory)) {}

/// A graph is not divided, and neither are the batches of the kernel for levels.
Index CudaExecution::stage_ends(Index batches_left) const {
  if (batches_left == batch_count()) return batches_left;
  if (cuda_->graphs != nullptr) return 0;
  const CudaMemory::Batches& kernel = words_.batches[number_of(Phase::back_level)];
  return kernel.count == 0 ? batches_left : std::min(batches_left, static_cast<Index>(kernel.first));
}

void CudaExecution::run_stage(const std::vector<PhaseRows>& stage, const At& at) {
  if (cuda_->graphs == nullptr) return run_levels(stage, at);
  // A graph update cannot turn launches into a cooperative one, so the shape includes where the kernel for levels
  // begins.
  const std::size_t number = number_of(stage.front().phase);
  const CudaMemory::Batches& batches = words_.batches[number];
  const auto run_graph = [&] {
    const bool has_kernel = batches.count > 0 && cuda_->hardware->runs_teams_together();
    const std::size_t kernel_at = has_kernel ? batches.first + 1 : 0;
    cuda_->graphs->run(CudaLane::of(at.lane, "a pass"), 2 * kernel_at + number, [&] { run_levels(stage, at); });
  };
  try {
    run_graph();
  } catch (const TeamsRefused&) {
    cuda_->hardware->refuse_teams_together();
    run_graph();
  }
}

/// In a stage, the batches of the kernel for levels are contiguous.
void CudaExecution::run_levels(const std::vector<PhaseRows>& stage, const At& at) {
  bool has_run = false;
  for (const PhaseRows& rows : stage) {
    const std::size_t number = number_of(rows.phase);
    const CudaMemory::Batches& kernel = words_.batches[number];
    const bool of_kernel = rows.batch >= static_cast<Index>(kernel.first) && kernel.count > 0;
    if (of_kernel && has_run) continue;
    if (!of_kernel || !cuda_->hardware->runs_teams_together()) {
      Execution::run(rows, at);
      continue;
    }
    try {
      run_kernel_of_levels(number, at.lane);
      has_run = true;
    } catch (const TeamsRefused&) {
      if (cuda_->graphs != nullptr) throw;  // the caller makes the graph again
      cuda_->hardware->refuse_teams_together();
      Execution::run(rows, at);
    }
  }
}

/// Passes the struct that LevelsPrinter declares for the kernel.
void CudaExecution::run_kernel_of_levels(std::size_t number, Lane* lane) {
  const CudaMemory::Batches& batches = words_.batches[number];
  const LevelsKernel& kernel = *cuda_->fused.levels[number];
  const std::size_t groups = batches.begin + batches.groups * words_of_barrier;
  std::vector<std::uint64_t> arguments = {
      static_cast<std::uint64_t>(elements()),
      reinterpret_cast<std::uint64_t>(data()),
      reinterpret_cast<std::uint64_t>(word(0)),
      reinterpret_cast<std::uint64_t>(word(batches.begin)),
      reinterpret_cast<std::uint64_t>(word(groups)),
      reinterpret_cast<std::uint64_t>(word(groups + batches.groups * words_of_group)),
      static_cast<std::uint64_t>(batches.count)};
  for (const LevelsKernel::Part& part : kernel.parts) {
    const At all{part.type, Rate::vertices, {0, layout_.types[part.type].rows}, lane};
    const bool has_rows = all.rows.end > 0;  // false: the type's values have no memory, and nothing uses them
    if (part.product == nullptr) {
      const FusedKernel& fused = cuda_->fused.kernels[part.number];
      if (has_rows) {
        add_arguments(fused, all, arguments);
      } else {
        arguments.resize(arguments.size() + words_of_argument(fused));
      }
      continue;
    }
    for (const Place& of : {part.product->in[0], part.product->in[1], part.product->out}) {
      const bool there = has_rows || of.in == Place::In::tensor;
      add_matrix(there ? operand(of, all) : Matrix<const float>{}, arguments);
    }
  }
  CudaLane& on = CudaLane::of(lane, kernel.name);
  on.issue(kernel.name.c_str(), [&] {
    return on.hardware().cuda().launch_together(on.queue(), cuda_->code->function(cuda_->levels_function[number]),
                                                kernel.teams * static_cast<int>(batches.groups), kernel.shared_bytes,
                                                arguments.data());
  });
}

void CudaExecution::run(const Segment& segment, const At& at) {
  for (const FusedPart& part : cuda_->fused.parts.at(&segment)) {
    switch (part.does) {
      case FusedPart::Does::fused:
        run_fused(cuda_->fused.kernels[part.number], cuda_->code->function(part.number), at);
        break;
      case FusedPart::Does::rows:
        run_rows(cuda_->fused.rows[part.number], segment,
                 cuda_->code->function(cuda_->first_rows_function + part.number), at);
        break;
      case FusedPart::Does::step:
        Execution::run(segment.steps[part.first], at);
        break;
      case FusedPart::Does::products:
        run_products(segment, part, at);
        break;
    }
  }
}

/// The struct Place of printed code.
void CudaExecution::add_matrix(const Matrix<const float>& matrix, std::vector<std::uint64_t>& to) {
  to.push_back(reinterpret_cast<std::uint64_t>(matrix.data));
  to.push_back(static_cast<std::uint64_t>(matrix.stride));
}

/// The struct that Printer declares for the kernel.
void CudaExecution::add_arguments(const FusedKernel& kernel, const At& at, std::vector<std::uint64_t>& to) const {
  to.push_back(static_cast<std::uint64_t>(at.rows.end - at.rows.begin));
  to.push_back(static_cast<std::uint64_t>(at.rows.begin));
  to.push_back(static_cast<std::uint64_t>(elements()));
  to.push_back(reinterpret_cast<std::uint64_t>(data()));
  to.push_back(reinterpret_cast<std::uint64_t>(word(0)));
  for (const Place& place : kernel.places) add_matrix(operand(place, at), to);
  if (kernel.places.empty()) to.resize(to.size() + 2);
  for (const std::size_t list : kernel.lists) to.push_back(words_.lists[at.type][list]);
  if (kernel.lists.empty()) to.emplace_back();
}

void CudaExecution::run_fused(const FusedKernel& kernel, Function* function, const At& at) const {
  std::vector<std::uint64_t> arguments;
  add_arguments(kernel, at, arguments);
  CudaLane& lane = CudaLane::of(at.lane, kernel.name);
  lane.issue(kernel.name.c_str(), [&] {
    return lane.hardware().cuda().launch(lane.queue(), function, (at.rows.end - at.rows.begin) * kernel.width,
                                         arguments.data());
  });
}

/// Passes the struct that RowsPrinter declares for the kernel.
void CudaExecution::run_rows(const RowsKernel& kernel, const Segment& segment, Function* function, const At& at) const {
  const Index rows = at.rows.end - at.rows.begin;
  std::vector<std::uint64_t> arguments = {static_cast<std::uint64_t>(rows)};
  for (const RowsPart& part : kernel.parts) {
    const Step& step = segment.steps[part.first];
    switch (part.does) {
      case RowsPart::Does::fused:
        add_arguments(cuda_->fused.kernels[part.number], at, arguments);
        break;
      case RowsPart::Does::product:
        for (const Place& place : {step.in[0], step.in[1], step.out}) add_matrix(operand(place, at), arguments);
        break;
      case RowsPart::Does::loss:
      case RowsPart::Does::loss_gradient:
        for (const Place& place : {step.in[0], step.in.back(), step.out}) add_matrix(operand(place, at), arguments);
        const std::size_t pull = step.indices.front();
        const Index width = layout_.types[at.type].indices[pull].width;
        arguments.push_back(
            reinterpret_cast<std::uint64_t>(word(packed().indices[at.type][pull]) + at.rows.begin * width));
        arguments.push_back(static_cast<std::uint64_t>(width));
    }
  }
  CudaLane& lane = CudaLane::of(at.lane, kernel.name);
  lane.issue(kernel.name.c_str(), [&] {
    return lane.hardware().cuda().launch(lane.queue(), function, RowsKernel::elements(rows), arguments.data());
  });
}

void CudaExecution::run_products(const Segment& segment, const FusedPart& part, const At& at) {
  const Step& one = segment.steps[part.first];
  const Step& two = segment.steps[part.first + 1];
  const Matrix<const float> x = operand(one.in[0], at), further_x = operand(two.in[0], at);
  const Matrix<float> out = place(one.out, at), further_out = place(two.out, at);
  if (further_x.stride != x.stride || further_out.stride != out.stride) {
    for (std::size_t i = part.first; i < part.last; ++i) Execution::run(segment.steps[i], at);
    return;
  }
  const Products products{.x = x,
                          .y = operand(one.in[1], at),
                          .out = out,
                          .y_transposed = one.op == &op::matmul_nt,
                          .add = one.write == Write::add,
                          .count = 2,
                          .x_step = further_x.data - x.data,
                          .out_step = further_out.data - out.data};
  CudaLane& lane = CudaLane::of(at.lane, "products");
  lane.issue("products", [&] { return lane.hardware().cuda().multiply(lane.queue(), &products); });
}

}  // namespace windrow::cuda
