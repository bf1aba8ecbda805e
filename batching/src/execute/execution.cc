#include "windrow/batching/internal/execution.h"

#include <algorithm>
#include <string>

#include "execute/losses.h"
#include "execute/step_clock.h"
#include "execute/step_kernels.h"
#include "run/origins.h"
#include "run/owned_var.h"

namespace windrow {

MinibatchEnd::MinibatchEnd(const Device& device) : over(owned_var(device.engine, "end of a minibatch")) {}

std::vector<std::size_t> Execution::numbers_of_inputs() const {
  const std::size_t come_first = plan_->program.function->tensors.size();
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const TensorSpec& spec = plan_->tensors[i];
    const bool comes_later = spec.is == TensorSpec::Is::given && spec.number >= come_first;
    if (spec.is != TensorSpec::Is::gradient && !comes_later) numbers.push_back(i);
  }
  return numbers;
}

std::vector<Var> Execution::inputs() const {
  std::vector<Var> vars;
  for (const std::size_t number : numbers_of_inputs()) vars.push_back(tensors_[number].var());
  return vars;
}

std::vector<Access> Execution::parameters() const {
  std::vector<Access> accesses;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (plan_->tensors[i].is == TensorSpec::Is::parameter) accesses.push_back(read(tensors_[i].var()));
  }
  return accesses;
}

std::size_t Execution::number_of(const std::string& output) const {
  const auto& outputs = plan_->program.function->outputs;
  const auto found = std::ranges::find(outputs, output, &ir::Field::name);
  return static_cast<std::size_t>(found - outputs.begin());
}

// --- Outputs

void Execution::collect(std::size_t output, std::vector<std::int32_t> row_of, const Tensor& out,
                        std::source_location from) {
  if (!in_order()) {
    device_.engine->push([self = self(), output, row_of = std::move(row_of),
                          to = out.view()] { self->copy_output(output, row_of, to.write()); },
                         {read(memory()), overwrite(out.var())},
                         {.name = "push", .lane = device_.lane, .pushed_at = from});
    return;
  }
  device_.engine->push(
      // The upload may read the words until the op is done.
      [self = self(), output, row_of = std::move(row_of), view = out.view(),
       made = std::make_shared<Gathers>()](OpContext& op) {
        Lane* const lane = op.lane();
        // The program may read the output after it has issued the next minibatch, and must not wait for that one.
        if (lane != nullptr) lane->anticipate_next();
        Allocator& memory = *self->device_.memory;
        const Matrix<float> to = view.write(lane);
        *made = self->gathers_of(output, row_of, to.rows);
        StepKernels(*self).fill(to, 0, Write::overwrite, lane);
        const std::size_t bytes = made->words.size() * sizeof(made->words[0]);
        std::byte* const start = memory.allocate(bytes);
        try {
          memory.upload(lane, start, reinterpret_cast<const std::byte*>(made->words.data()),
                        CopyShape::contiguous(bytes));
          for (const PackedLayout::Source& of : made->sources) {
            const At all = self->all_rows(of.type, Rate::vertices, lane);
            StepKernels(*self).gather_sum(self->operand(self->plan_->types[of.type].pushes[output], all),
                                          reinterpret_cast<const std::int32_t*>(start), of.gather, {0, to.rows}, to,
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
  // The device may collect the output before the host has checked the losses.
  device_.engine->push([self = self()] {}, {read(verdict_), mutate(out.var())},
                       {.name = "loss", .lane = Losses(*this).verdict_lane(), .pushed_at = from});
}

Execution::Gathers Execution::gathers_of(std::size_t output, const std::vector<std::int32_t>& row_of,
                                         Index count) const {
  // If several vertices have one row, the last one is used, as it is side by side.
  std::vector<VertexRow> source(static_cast<std::size_t>(count), {plan_->types.size(), 0});  // by row of the output
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    for (Index r = 0; r < layout_.types[t].rows; ++r) {
      const std::int32_t vertex = layout_.types[t].vertex[static_cast<std::size_t>(r)];
      const std::int32_t row = row_of.empty() ? vertex : row_of[static_cast<std::size_t>(vertex)];
      if (row >= 0) source[static_cast<std::size_t>(row)] = {t, r};
    }
  }
  std::vector<std::vector<PackedLayout::RowSource>> rows(plan_->types.size());
  for (Index row = 0; row < count; ++row) {
    const auto [type, from_row] = source[static_cast<std::size_t>(row)];
    if (type < rows.size()) rows[type].push_back({static_cast<std::int32_t>(row), static_cast<std::int32_t>(from_row)});
  }
  Gathers made;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    if (rows[t].empty() || plan_->types[t].pushes[output].in == Place::In::nowhere) continue;
    made.sources.push_back({t, 0, PackedLayout::append(made.words, count, rows[t])});
  }
  return made;
}

void Execution::copy_output(std::size_t output, const std::vector<std::int32_t>& row_of, Matrix<float> out) const {
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    const TypeRows& type = layout_.types[t];
    if (type.rows == 0) continue;
    const Place& place = plan_->types[t].pushes[output];
    const Matrix<const float> from =
        place.in == Place::In::nowhere ? Matrix<const float>{} : operand(place, all_rows(t, Rate::vertices, nullptr));
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

void Execution::check_losses(LossCheck check, std::source_location from) { Losses(*this).push(std::move(check), from); }

// --- Names

std::string Execution::name() const {
  return "minibatch " + std::to_string(options_.number) + " of " + plan_->program.function->name;
}

std::string Execution::name_of(VertexRow vertex) const {
  const auto number = layout_.types[vertex.type].vertex[static_cast<std::size_t>(vertex.row)];
  std::size_t graph = 0;
  while (graph + 1 < layout_.first_vertex.size() && layout_.first_vertex[graph + 1] <= number) ++graph;
  const auto& name = layout_.names[graph];
  return "sample " + std::to_string(graph) + (name ? " (" + *name + ")" : "") + ", vertex " +
         std::to_string(number - layout_.first_vertex[graph]);
}

std::string Execution::origin_of(VertexRow vertex, const Step* step) const {
  if (!options_.origins) return " at " + name_of(vertex);
  const auto number = layout_.types[vertex.type].vertex[static_cast<std::size_t>(vertex.row)];
  const Operator* const op = step == nullptr ? nullptr : plan_->program.at(step->node).op;
  return " recorded at " + options_.origins->of(number, op);
}

std::string Execution::name_of(const Step& step) const {
  const ir::Node& node = plan_->program.at(step.node);
  if (node.op != nullptr) return std::string(node.op->name.text());
  return step.does == Step::Does::kernel ? "sum" : std::string(windrow::name_of(step));
}

}  // namespace windrow
