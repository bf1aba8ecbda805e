#include "windrow/batching/backend/execution.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "layout/layout_memory.h"
#include "run/origins.h"
#include "run/runner_notes.h"
#include "run/tag.h"
#include "windrow/batching/not_finite.h"
#include "windrow/ops/number.h"

namespace windrow {

MinibatchEnd::MinibatchEnd(const Device& device) : over(tag(device.engine, "end of a minibatch")) {}

Execution::Execution(const Device& device, std::shared_ptr<const Plan> plan, Layout layout, std::vector<Tensor> tensors,
                     Options options)
    : device_(device),
      plan_(std::move(plan)),
      layout_(std::move(layout)),
      tensors_(std::move(tensors)),
      adds_to_(tensors_.size(), 0),
      options_(std::move(options)),
      end_(std::make_shared<MinibatchEnd>(device)),
      notes_(std::make_unique<RunnerNotes>()) {}

Execution::~Execution() {
  if (options_.layouts != nullptr) options_.layouts->give_back(std::move(layout_));
}

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

Execution::Range Execution::range(std::size_t type, Rate rate, Range vertices) const {
  if (rate == Rate::vertices) return vertices;
  const auto& begin = layout_.types[type].edge_begin;
  return {begin[static_cast<std::size_t>(vertices.begin)], begin[static_cast<std::size_t>(vertices.end)]};
}

Tensor Execution::rows_of(const Plan::Rows& rows) const {
  const auto type = static_cast<std::size_t>(rows.vertex_type);
  const TypePlan& plan = plan_->types[type];
  const Index stride = plan.regions[rows.rows.number].stride;
  return Tensor(memory_, layout_.count(type, rows.rows.rate), stride, offsets_[plan.first_region + rows.rows.number])
      .column_range(rows.rows.column, rows.rows.column + rows.rows.width);
}

std::size_t Execution::number_of(const std::string& output) const {
  const auto& outputs = plan_->program.function->outputs;
  const auto found = std::ranges::find(outputs, output, &ir::Field::name);
  return static_cast<std::size_t>(found - outputs.begin());
}

// --- Losses

std::optional<Execution::BadLoss> Execution::add_up_losses(const ValuesOf& values_of) {
  double sum = 0;
  std::optional<BadLoss> bad;
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    if (layout_.types[t].rows == 0) continue;
    for (const Place& place : plan_->types[t].losses) {
      const Matrix<const float> values = values_of(t, place);
      for (Index r = 0; r < values.rows; ++r) {
        const float value = *values.row(r);
        sum += value;
        if (std::isfinite(value) || bad) continue;
        const std::string of = name_of(VertexRow{t, r});
        bad = {{t, r}, name() + ": the loss of " + of + " is " + shortest_text(value) + ", expected a finite number; "};
      }
    }
  }
  end_->loss = sum;
  return bad;
}

std::optional<Execution::BadLoss> Execution::find_bad(const LossCheck& check, Matrix<const float> values) const {
  for (const LossCheck::Loss& loss : check.losses) {
    const float value = *values.row(loss.row);
    if (std::isfinite(value)) continue;
    const std::string what =
        "the loss recorded at " + line_of(loss.from) + " is " + shortest_text(value) + ", expected a finite number; ";
    for (std::size_t t = 0; t < layout_.types.size(); ++t) {
      const auto& vertices = layout_.types[t].vertex;
      const auto found = std::find(vertices.begin(), vertices.end(), loss.vertex);
      if (found != vertices.end()) return BadLoss{{t, found - vertices.begin()}, what, check.output};
    }
    throw NotFiniteError(what + "its vertex is not known");
  }
  return std::nullopt;
}

void Execution::refuse(const std::string& text, bool note) const {
  if (!note) throw NotFiniteError(text);
  end_->not_finite = text;
}

// --- Names

std::string Execution::name() const {
  return "minibatch " + std::to_string(options_.number) + " of " + plan_->program.function->name;
}

std::string Execution::name_of(VertexRow vertex) const {
  const auto number = layout_.types[vertex.type].vertex[static_cast<std::size_t>(vertex.row)];
  std::size_t graph = 0;
  while (graph + 1 < layout_.first_vertex.size() && layout_.first_vertex[graph + 1] <= number) ++graph;
  const auto& name = layout_.names[graph];
  return "vertex " + std::to_string(number - layout_.first_vertex[graph]) + " of graph " + std::to_string(graph) +
         (name ? " (" + *name + ")" : "");
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
  switch (step.does) {
    case Step::Does::fill:
      return "fill";
    case Step::Does::gather:
      return "gather";
    case Step::Does::incoming:
      return "incoming";
    case Step::Does::gather_dot:
    case Step::Does::gather_weighted_sum:
    case Step::Does::incoming_products:
      return std::string(step.op->name.text());
    default:
      return "sum";
  }
}

}  // namespace windrow
