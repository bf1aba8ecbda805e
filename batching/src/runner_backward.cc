// How a runner hands over gradients: those of outputs come in, those of parameters and given tensors go out.
#include <algorithm>
#include <optional>

#include "batch.h"
#include "push.h"
#include "windrow/batching/runner.h"
#include "windrow/ops/apply.h"

namespace windrow {
namespace {

/// What a lookup left for its gradient; none without rows.
std::optional<Gradient::Rows> rows_left(const Batch& batch, const Plan::Rows& rows, RunnerStats& stats,
                                        std::source_location from) {
  const auto type = static_cast<std::size_t>(rows.vertex_type);
  if (batch.layout().count(type, rows.rows.rate) == 0) return std::nullopt;
  const auto indices_of = [&](std::vector<std::int32_t> elements) {
    IntTensor of(batch.device(), static_cast<Index>(elements.size()), 1, "rows");
    of.set(std::move(elements), from);
    ++stats.ops;
    return of;
  };
  const std::vector<std::int32_t>& all = batch.layout().types[type].indices[rows.index_pull].elements;
  if (!batch.plan().program.lacks_index(rows.vertex_type, rows.index_pull)) {
    return Gradient::Rows{indices_of(all), batch.rows_of(rows)};
  }
  std::vector<std::int32_t> present, elements;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r] == -1) continue;
    present.push_back(static_cast<std::int32_t>(r));
    elements.push_back(all[r]);
  }
  if (present.empty()) return std::nullopt;
  const Tensor of_present(batch.device(), static_cast<Index>(present.size()), rows.rows.width, "rows");
  apply(batch.device(), op::gather_rows, {.in = {batch.rows_of(rows)}, .indices = {indices_of(std::move(present))}},
        of_present, from);
  ++stats.ops;
  return Gradient::Rows{indices_of(std::move(elements)), of_present};
}

}  // namespace

void Runner::backward(const Minibatch& minibatch, const std::map<std::string, Tensor>& gradients,
                      Gradients of_parameters, std::source_location from) {
  const std::shared_ptr<Batch>& batch = minibatch.batch_;
  const Plan& plan = batch->plan();
  if (batch->runner() != id_ || !plan.training || batch->differentiated) {
    throw MisuseError(function_.name() + ": backward() of a minibatch that " +
                      (batch->differentiated ? "was differentiated" : "this runner did not record"));
  }
  take_gradients(*batch, gradients);
  if (of_parameters == Gradients::add) {
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      const TensorSpec& spec = plan.tensors[i];
      if (spec.is == TensorSpec::Is::gradient && parameters_.entries_[spec.number].gradient.all) batch->add_to(i);
    }
  } else {
    parameters_.forget_gradients();
  }
  Push push(batch, options_, stats_, from);
  for (Index g = 0; g < batch->layout().groups; ++g) push.group(g, Push::Passes::backward);
  push.seal();
  push.after();
  add_gradients(*batch, from);
}

/// The gradients of outputs become tensors of the plan.
void Runner::take_gradients(Batch& batch, const std::map<std::string, Tensor>& gradients) const {
  const ir::Function& function = *function_.function_;
  std::size_t taken = 0;
  for (std::size_t output : batch.plan().outputs) {
    const ir::Field& field = function.outputs[output];
    const auto found = gradients.find(field.name);
    const std::string gradient = function.name + ": the gradient of output '" + field.name + "'";
    if (found == gradients.end()) throw MisuseError(gradient + " was announced, but is not given");
    const Tensor& tensor = found->second;
    const bool announced = output < batch.announced_rows.size() && batch.announced_rows[output] != 0;
    const bool any_rows = announced || batch.layout().vertices == 0;
    const Index vertices = any_rows ? tensor.rows() : batch.layout().vertices;
    if (tensor.rows() != vertices || tensor.width() != field.width) {
      throw MisuseError(gradient + " is " + to_string({Rows::count(tensor.rows()), tensor.width()}) + "; expected " +
                        to_string({Rows::count(vertices), field.width}));
    }
    ++taken;
    for (std::size_t i = 0; i < batch.plan().tensors.size(); ++i) {
      const TensorSpec& spec = batch.plan().tensors[i];
      if (spec.is != TensorSpec::Is::given || spec.number != function.tensors.size() + output) continue;
      batch.set_tensor(i, tensor);
    }
  }
  if (taken == gradients.size()) return;
  throw MisuseError(function.name + ": gradients of " + std::to_string(gradients.size()) + " outputs are given; " +
                    "expected those that record() named, " + std::to_string(taken));
}

void Runner::set_gradients(Batch& batch, std::source_location from) {
  parameters_.forget_gradients();
  add_gradients(batch, from);
}

void Runner::add_gradients(Batch& batch, std::source_location from) {
  for (const TensorSpec& spec : batch.plan().tensors) {
    if (spec.is != TensorSpec::Is::gradient) continue;
    Parameters::Entry& entry = parameters_.entries_[spec.number];
    entry.gradient.all = *entry.dense;
  }
  for (const Plan::Rows& rows : batch.plan().rows) {
    const auto left = rows_left(batch, rows, stats_, from);
    if (!left) continue;
    if (rows.of == ir::Program::Rows::Of::tensor) {
      batch.given[rows.number].gradient.rows.push_back(*left);
    } else {
      parameters_.entries_[rows.number].gradient.rows.push_back(*left);
    }
  }
  batch.differentiated = true;
}

}  // namespace windrow
