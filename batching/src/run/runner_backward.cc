// Gradients that a runner receives for outputs, and gradients that it sets for parameters and given tensors.
#include <algorithm>
#include <optional>

#include "parameters/parameter_stores.h"
#include "run/runner_notes.h"
#include "windrow/batching/internal/execution.h"
#include "windrow/batching/runner.h"
#include "windrow/ops/apply.h"

namespace windrow {
namespace {

/// The rows of the gradient of a lookup; none if no row looked anything up.
std::optional<LookedUp> rows_left(const Execution& execution, const Plan::Rows& rows, std::source_location from) {
  const auto type = static_cast<std::size_t>(rows.vertex_type);
  if (execution.layout().count(type, rows.rows.rate) == 0) return std::nullopt;
  const std::vector<std::int32_t>& row_of = execution.layout().types[type].indices[rows.index_pull].elements;
  if (execution.plan().program.lacks_index(rows.vertex_type, rows.index_pull) &&
      std::all_of(row_of.begin(), row_of.end(), [](std::int32_t row) { return row == -1; })) {
    return std::nullopt;
  }
  return LookedUp{row_of, execution.rows_of(rows), from, execution.segments_of(rows)};
}

}  // namespace

void Runner::backward(const Minibatch& minibatch, const std::map<std::string, Tensor>& gradients,
                      Gradients of_parameters, std::source_location from) {
  const std::shared_ptr<Execution>& execution = minibatch.execution_;
  const Plan& plan = execution->plan();
  if (execution->runner() != id_ || !plan.training || execution->notes().differentiated) {
    throw MisuseError(function_.name() + ": backward() of a minibatch that " +
                      (execution->notes().differentiated ? "was differentiated" : "this runner did not record"));
  }
  take_gradients(*execution, gradients);
  if (of_parameters == Gradients::set) parameters_->begin_gradients();
  add_to_gradients(*execution);
  execution->backward({options_, stats_, from});
  add_gradients(*execution, from);
}

/// Sets the gradients of outputs as tensors of the execution.
void Runner::take_gradients(Execution& execution, const std::map<std::string, Tensor>& gradients) const {
  const ir::Function& function = *function_.function_;
  std::size_t taken = 0;
  for (std::size_t output : execution.plan().outputs) {
    const ir::Field& field = function.outputs[output];
    const auto found = gradients.find(field.name);
    const std::string gradient = function.name + ": the gradient of output '" + field.name + "'";
    if (found == gradients.end()) throw MisuseError(gradient + " was announced, but is not given");
    const Tensor& tensor = found->second;
    const std::vector<char>& announced_rows = execution.notes().announced_rows;
    const bool announced = output < announced_rows.size() && announced_rows[output] != 0;
    const bool any_rows = announced || execution.layout().vertices == 0;
    const Index vertices = any_rows ? tensor.rows() : execution.layout().vertices;
    if (tensor.rows() != vertices || tensor.width() != field.width) {
      throw MisuseError(gradient + " is " + to_string({Rows::count(tensor.rows()), tensor.width()}) + "; expected " +
                        to_string({Rows::count(vertices), field.width}));
    }
    if (const Index least = execution.layout().gradient_rows[output]; tensor.rows() < least) {
      throw MisuseError(gradient + " has " + std::to_string(tensor.rows()) + " rows; expected at least " +
                        std::to_string(least) + ", as its vertices say");
    }
    if (!device_.holds(tensor)) {
      throw MisuseError(gradient + " is not in the memory of device '" + device_.name + "'; expected it there");
    }
    ++taken;
    for (std::size_t i = 0; i < execution.plan().tensors.size(); ++i) {
      const TensorSpec& spec = execution.plan().tensors[i];
      if (spec.is != TensorSpec::Is::given || spec.number != function.tensors.size() + output) continue;
      execution.set_tensor(i, tensor);
    }
  }
  if (taken == gradients.size()) return;
  throw MisuseError(function.name + ": gradients of " + std::to_string(gradients.size()) + " outputs are given; " +
                    "expected those that record() named, " + std::to_string(taken));
}

/// The execution adds to the gradients that parameters have.
void Runner::add_to_gradients(Execution& execution) const {
  const std::vector<TensorSpec>& tensors = execution.plan().tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].is != TensorSpec::Is::gradient) continue;
    if (parameters_->entry(numbers_[tensors[i].number]).gradient.all) execution.add_to(i);
  }
}

void Runner::add_gradients(Execution& execution, std::source_location from) {
  for (const TensorSpec& spec : execution.plan().tensors) {
    if (spec.is != TensorSpec::Is::gradient) continue;
    ParameterStore::Entry& entry = parameters_->entry(numbers_[spec.number]);
    entry.gradient.all = *entry.dense;
  }
  for (const Plan::Rows& rows : execution.plan().rows) {
    const bool of_parameter = rows.of == ir::Program::Rows::Of::parameter;
    if (of_parameter) {
      ParameterStore::Entry& entry = parameters_->entry(numbers_[rows.number]);
      entry.depends = true;
      entry.gradient.rows.clear();  // they were the sums of fewer lookups
    }
    auto left = rows_left(execution, rows, from);
    if (!left) continue;
    auto& lookups =
        of_parameter ? parameters_->entry(numbers_[rows.number]).lookups : execution.notes().given[rows.number].lookups;
    lookups.push_back(std::move(*left));
  }
  parameters_->add_source(execution.end());
  execution.notes().differentiated = true;
}

}  // namespace windrow
